"""Serves prompts on the console: text as it is verified on standard output, or JSON events. Knows nothing of HTTP."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from draft_node import standard_input
from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from draft_node.session import Deliver, Fail, Finish, Request, Statistics
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.text import encode_prompt
from goodspeed.errors import PromptError
from goodspeed.events import EventLog
from goodspeed.messages import Sampling
from goodspeed.prompts import Prompt, parse
from goodspeed.text_stream import TextStream


class Console:
    """Runs prompts through a draft node and tells what comes of them."""

    def __init__(self, config: DraftConfig, checkpoint: Checkpoint, daemon: DraftDaemon, events: EventLog) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.daemon = daemon
        self.events = events
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0

    async def run(self, prompts: list[Prompt] | None) -> None:
        """All prompts at once, as many as the node serves together; without a list, line after line of stdin."""
        if prompts is not None:
            async with asyncio.TaskGroup() as tasks:
                for index, prompt in enumerate(prompts):
                    tasks.create_task(self._serve(index, prompt, live=len(prompts) == 1))
            return
        index = 0
        async for prompt in _stdin_prompts(jsonl=self.config.prompts == standard_input.NAME):
            await self._serve(index, prompt, live=True)
            index += 1

    def request(self, prompt: Prompt) -> Request:
        """The session that a prompt asks for; without any seed it gets a random one."""
        seed = prompt.seed if prompt.seed is not None else self.config.seed
        config = self.config
        return Request(
            session_id=secrets.token_bytes(16),
            prompt=tuple(encode_prompt(self.checkpoint.tokenizer, prompt.text)),
            sampling=Sampling(
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=seed if seed is not None else secrets.randbits(62),
            ),
            max_tokens=config.max_tokens,
            stop_ids=self.checkpoint.eos_ids,
            verification="ratio" if config.verification == "ratio" else "match",
            max_draft=config.max_draft,
        )

    async def _serve(self, index: int, prompt: Prompt, *, live: bool) -> None:
        """One prompt from beginning to end; a failed one is reported, and the others go on."""
        try:
            request = self.request(prompt)
        except PromptError as error:
            self._fail(index, prompt, "prompt", str(error))
            return
        session_id = request.session_id.hex()
        self.events.write("start", index=index, session=session_id, domain=prompt.domain, prompt=prompt.text)
        started = time.perf_counter()
        stream, token_ids, shown = TextStream(self.checkpoint.tokenizer), list[int](), list[str]()

        def show(text: str) -> None:
            shown.append(text)
            if live and not self.events.enabled:
                print(text, end="", flush=True)

        async for item in self.daemon.generate(request):
            statistics = self.daemon.session(request.session_id).statistics
            if isinstance(item, Deliver):
                token_ids += item.tokens
                show(text := stream.push(item.tokens))
                self.events.write("tokens", index=index, session=session_id, token_ids=item.tokens, text=text)
            elif isinstance(item, Fail):
                self._fail(index, prompt, item.code, item.what)
                return
            else:
                show(stream.end())
                elapsed_s = time.perf_counter() - started
                self._finish(index, prompt, request, item, statistics, token_ids, "".join(shown), elapsed_s)
                if not self.events.enabled:
                    print(flush=True) if live else self._print(index, prompt, "".join(shown))

    def _finish(
        self,
        index: int,
        prompt: Prompt,
        request: Request,
        finish: Finish,
        statistics: Statistics,
        token_ids: list[int],
        text: str,
        elapsed_s: float,
    ) -> None:
        result = {
            "index": index,
            "session": request.session_id.hex(),
            "domain": prompt.domain,
            "prompt": prompt.text,
            "seed": request.sampling.seed,
            "text": text,
            "token_ids": token_ids,
            "finish_reason": finish.reason,
            "elapsed_s": elapsed_s,
            "acceptance_rate": statistics.acceptance_rate,
            **asdict(statistics),
        }
        self.results.append(result)
        self.events.write("finish", **result)

    def _fail(self, index: int, prompt: Prompt, code: str, what: str) -> None:
        self.num_failed += 1
        self.results.append({"index": index, "prompt": prompt.text, "error": {"code": code, "what": what}})
        self.events.write("fail", index=index, code=code, what=what)
        print(f"prompt {index + 1} failed: {what} ({code})", file=sys.stderr, flush=True)

    @staticmethod
    def _print(index: int, prompt: Prompt, text: str) -> None:
        print(f"--- prompt {index + 1} {prompt.domain}\n{prompt.text}{text}", flush=True)


async def _stdin_prompts(*, jsonl: bool) -> AsyncIterator[Prompt]:
    """Every line of standard input that is not blank, as it comes: a prompt of its own, as text or as JSON."""
    number = 0
    async for line in standard_input.lines():
        number += 1
        if line.strip():
            yield parse(line, f"standard input, line {number}") if jsonl else Prompt(line)
