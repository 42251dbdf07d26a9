"""Serves prompts on the console: text as it is verified on standard output, or JSON events. Knows nothing of HTTP."""

import asyncio
import secrets
import sys
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from draft_node import standard_input
from draft_node.actions import Deliver, Fail, Finish, Request, Statistics
from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.text import encode_chat, encode_prompt
from goodspeed.errors import PromptError
from goodspeed.events import EventLog
from goodspeed.messages import Sampling
from goodspeed.prompts import Prompt, parse
from goodspeed.text_stream import TextStream


@dataclass(slots=True)
class _Answer:
    """What one prompt has come to so far."""

    index: int
    prompt: Prompt
    request: Request
    stream: TextStream
    live: bool  # shown as it comes
    started: float = field(default_factory=time.perf_counter)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""

    @property
    def session(self) -> str:
        return self.request.session_id.hex()

    def result(self, finish: Finish, statistics: Statistics) -> dict[str, Any]:
        return {
            "index": self.index,
            "session": self.session,
            "domain": self.prompt.domain,
            "prompt": self.prompt.text,
            "seed": self.request.sampling.seed,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": finish.reason,
            "elapsed_s": time.perf_counter() - self.started,
            "acceptance_rate": statistics.acceptance_rate,
            **asdict(statistics),
        }


class Console:
    """Runs prompts through a draft node and tells what comes of them."""

    def __init__(
        self,
        config: DraftConfig,
        checkpoint: Checkpoint,
        daemon: DraftDaemon,
        events: EventLog,
        prompts: list[Prompt] | None,
    ) -> None:
        """prompts: None for those of standard input."""
        self.config = config
        self.checkpoint = checkpoint
        self.daemon = daemon
        self.events = events
        self.prompts = prompts
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0
        self.unfinished = {index: prompt.text for index, prompt in enumerate(prompts or [])}  # and not failed
        self._encoding = asyncio.Lock()  # tokenizers do not like to be used twice at a time

    async def run(self) -> None:
        """As many prompts at once as the node serves together."""
        if self.prompts is None:
            await self._run_standard_input(jsonl=self.config.prompts == standard_input.NAME)
        else:
            await self._run_list(self.prompts)

    async def _run_list(self, prompts: list[Prompt]) -> None:
        async with asyncio.TaskGroup() as tasks:
            slots = asyncio.Semaphore(self.config.max_sessions)
            for index, prompt in enumerate(prompts):
                await self._begin(tasks, slots, index, prompt, live=len(prompts) == 1)

    async def _run_standard_input(self, *, jsonl: bool) -> None:
        """Every line that is not blank, as it comes: one after another as text, several at once as JSON."""
        async with asyncio.TaskGroup() as tasks, aclosing(standard_input.lines()) as lines:
            slots = asyncio.Semaphore(self.config.max_sessions if jsonl else 1)
            number = index = 0
            async for line in lines:
                number += 1
                if not line.strip():
                    continue
                try:
                    prompt = parse(line, f"standard input, line {number}") if jsonl else Prompt(line)
                except PromptError as error:
                    self._fail(index, line, "prompt", str(error))
                else:
                    self.unfinished[index] = prompt.text
                    await self._begin(tasks, slots, index, prompt, live=not jsonl)
                index += 1

    async def _begin(
        self, tasks: asyncio.TaskGroup, slots: asyncio.Semaphore, index: int, prompt: Prompt, *, live: bool
    ) -> None:
        """Waits for a free slot, and no longer."""
        await slots.acquire()
        serving = tasks.create_task(self._serve(index, prompt, live=live))
        serving.add_done_callback(lambda _: slots.release())

    async def request(self, prompt: Prompt) -> Request:
        """The session that a prompt asks for; without any seed it gets a random one. PromptError if it cannot be.

        Waits for the verify node: where a text ends is for the target to say, not for the draft model. With `--fallback
        local` it is waited for no longer than for anything else.
        """
        seed = prompt.seed if prompt.seed is not None else self.config.seed
        config = self.config
        async with self._encoding:
            token_ids = await asyncio.to_thread(self._encode, prompt.text)
        await self.daemon.ready.wait()
        welcome = self.daemon.link.welcome
        return Request(
            session_id=secrets.token_bytes(16),
            prompt=tuple(token_ids),
            sampling=Sampling(
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=seed if seed is not None else secrets.randbits(62),
            ),
            max_tokens=config.max_tokens,
            stop_ids=welcome.eos_ids if welcome else self.checkpoint.eos_ids,
            verification="ratio" if config.verification == "ratio" else "match",
            max_draft=config.max_draft,
        )

    def give_up(self, code: str, what: str) -> None:
        """Nobody serves the prompts that are unfinished any more."""
        for index, prompt in self.unfinished.items():
            self._note_failure(index, prompt, code, what)
        self.unfinished.clear()

    def _encode(self, text: str) -> list[int]:
        if self.config.chat:
            return encode_chat(self.checkpoint.tokenizer, [{"role": "user", "content": text}])
        return encode_prompt(self.checkpoint.tokenizer, text)

    async def _serve(self, index: int, prompt: Prompt, *, live: bool) -> None:
        """One prompt from beginning to end; a failed one is reported, and the others go on."""
        try:
            request = await self.request(prompt)
        except PromptError as error:
            self._fail(index, prompt.text, "prompt", str(error))
            return
        answer = _Answer(index, prompt, request, TextStream(self.checkpoint.tokenizer), live)
        self.events.write("start", index=index, session=answer.session, domain=prompt.domain, prompt=prompt.text)
        async with aclosing(self.daemon.generate(request)) as items:
            async for item in items:
                match item:
                    case Deliver():
                        self._show(answer, item)
                    case Finish():
                        self._finish(answer, item, self.daemon.session(request.session_id).statistics)
                    case Fail():
                        self._fail(index, prompt.text, item.code, item.what)

    def _show(self, answer: _Answer, delivered: Deliver) -> None:
        answer.token_ids += delivered.tokens
        text = answer.stream.push(delivered.tokens)
        self._print(answer, text)
        told = {"index": answer.index, "session": answer.session, "token_ids": delivered.tokens, "text": text}
        self.events.write("tokens", **told, local=delivered.local, at=time.monotonic())

    def _finish(self, answer: _Answer, finish: Finish, statistics: Statistics) -> None:
        self._print(answer, answer.stream.end())
        self.unfinished.pop(answer.index, None)
        result = answer.result(finish, statistics)
        self.results.append(result)
        self.events.write("finish", **result)
        if statistics.num_local:
            what = f"{statistics.num_local} of its {statistics.num_tokens} tokens are the draft model's own"
            print(f"prompt {answer.index + 1}: {what}", file=sys.stderr, flush=True)
        if self.events.enabled:
            return
        if answer.live:
            print(flush=True)
        else:
            print(
                f"--- prompt {answer.index + 1} {answer.prompt.domain}\n{answer.prompt.text}{answer.text}", flush=True
            )

    def _print(self, answer: _Answer, text: str) -> None:
        answer.text += text
        if answer.live and not self.events.enabled:
            print(text, end="", flush=True)

    def _fail(self, index: int, prompt: str, code: str, what: str) -> None:
        self.unfinished.pop(index, None)
        self._note_failure(index, prompt, code, what)
        print(f"prompt {index + 1} failed: {what} ({code})", file=sys.stderr, flush=True)

    def _note_failure(self, index: int, prompt: str, code: str, what: str) -> None:
        self.num_failed += 1
        self.results.append({"index": index, "prompt": prompt, "error": {"code": code, "what": what}})
        self.events.write("fail", index=index, code=code, what=what)
