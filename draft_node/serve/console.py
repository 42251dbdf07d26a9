"""Serves prompts on the console: text as it is verified on standard output, or JSON events. Knows nothing of HTTP."""

import asyncio
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from draft_node.config import DraftConfig
from draft_node.core.actions import Deliver, Fail, Finish, Request, Statistics
from draft_node.daemon import DraftDaemon
from draft_node.serve import standard_input
from draft_node.text.answer import Answer
from draft_node.text.token_text import TokenTexts
from goodspeed.command.events import EventLog
from goodspeed.command.reporter import QUIET, Reporter
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.text import encode_chat, encode_prompt, ends_blank
from goodspeed.errors import PromptError
from goodspeed.node import defaults
from goodspeed.text.prompts import Prompt, cut_notice, no_prompts_error, parse
from goodspeed.wire.messages import Defaults

READING_S = 2.0
"""If the first token takes longer than this, a status line says that the prompt is being read."""


@dataclass(slots=True)
class _Serving:
    """What one prompt has come to so far."""

    index: int
    prompt: Prompt
    request: Request
    answer: Answer
    live: bool  # shown as it comes
    started: float = field(default_factory=time.perf_counter)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""

    @property
    def session(self) -> str:
        return self.request.session_id.hex()

    def result(self, statistics: Statistics) -> dict[str, Any]:
        """`token_ids` go up to the one that completes a stop string; the text ends where the stop string begins.

        What came after it counts for drafting, and not as a token of the answer.
        """
        told = asdict(statistics) | {"num_tokens": self.answer.num_tokens, "num_local": self.answer.num_local}
        return {
            "index": self.index,
            "session": self.session,
            "domain": self.prompt.domain,
            "prompt": self.prompt.text,
            "seed": self.request.sampling.seed,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.answer.reason,
            "elapsed_s": time.perf_counter() - self.started,
            "acceptance_rate": statistics.acceptance_rate,
            **told,
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
        reporter: Reporter = QUIET,
    ) -> None:
        """prompts: None for those of standard input."""
        self.config = config
        self.checkpoint = checkpoint
        self.daemon = daemon
        self.events = events
        self.prompts = prompts
        self.reporter = reporter
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0
        self.unfinished = {index: prompt.text for index, prompt in enumerate(prompts or [])}  # and not failed
        self._token_texts = TokenTexts(checkpoint.tokenizer)
        self._told_of_context = False
        self._encoding = asyncio.Lock()  # tokenizers do not like to be used twice at a time

    async def run(self) -> None:
        """As many prompts at once as the node serves together."""
        if self.prompts is None:
            if sys.stdin is not None and sys.stdin.isatty():
                self.reporter.say("type a prompt and press Enter; Ctrl-D ends")
            await self._run_standard_input(jsonl=self.config.prompts == standard_input.NAME)
        else:
            await self._run_list(self.prompts)

    async def _run_list(self, prompts: list[Prompt]) -> None:
        async with asyncio.TaskGroup() as tasks:
            slots = asyncio.Semaphore(self.config.max_sessions)
            for index, prompt in enumerate(prompts):
                await self._begin(tasks, slots, index, prompt, live=len(prompts) == 1)

    async def _run_standard_input(self, *, jsonl: bool) -> None:
        """Every line that is not blank, as it comes: one after another as text, several at once as JSON.

        PromptError where there is none, as of an empty file.
        """
        number = index = 0
        async with asyncio.TaskGroup() as tasks, aclosing(standard_input.lines()) as lines:
            slots = asyncio.Semaphore(self.config.max_sessions if jsonl else 1)
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
        if index == 0:
            raise no_prompts_error("standard input", jsonl=jsonl)

    async def _begin(
        self, tasks: asyncio.TaskGroup, slots: asyncio.Semaphore, index: int, prompt: Prompt, *, live: bool
    ) -> None:
        """Waits for a free slot, and no longer."""
        await slots.acquire()
        serving = tasks.create_task(self._serve(index, prompt, live=live))
        serving.add_done_callback(lambda _: slots.release())

    async def request(self, prompt: Prompt) -> Request:
        """The session that a prompt asks for; without any seed it gets a random one. PromptError if it cannot be.

        Waits for the verify node, whose Welcome has the end-of-sequence ids; with `--fallback local`, for
        --connect-timeout-s at most.
        """
        seed = prompt.seed if prompt.seed is not None else self.config.seed
        config = self.config
        async with self._encoding:
            token_ids = await asyncio.to_thread(self._encode, prompt.text)
        await self.daemon.ready.wait()
        welcome, says = self.daemon.link.welcome, self._defaults()
        return Request(
            session_id=secrets.token_bytes(16),
            prompt=tuple(token_ids),
            sampling=defaults.sampling(
                says,
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                seed=seed if seed is not None else secrets.randbits(62),
            ),
            max_tokens=config.max_tokens,
            stop_ids=welcome.eos_ids if welcome else self.checkpoint.eos_ids,
            verification=config.verification,
            max_draft=config.max_draft,
            target=welcome.target_fingerprint if welcome else None,
        )

    def _defaults(self) -> Defaults:
        """What holds where an option is left open."""
        return defaults.known(self.daemon.link.welcome, self.checkpoint.settings, chat=self.config.chat)

    def _begin_answer(self, prompt_ids: Sequence[int]) -> Answer:
        """Nothing of it yet."""
        tokenizer = self.checkpoint.tokenizer
        is_trimmed = self.config.chat and not ends_blank(tokenizer, prompt_ids)
        return Answer(tokenizer, self._token_texts, defaults.stops(self._defaults()), 0, is_trimmed=is_trimmed)

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
        while await self._attempt(index, prompt, live=live):
            pass

    async def _attempt(self, index: int, prompt: Prompt, *, live: bool) -> bool:
        """Whether it has to be asked for again: another target is there, before the one before wrote anything."""
        try:
            request = await self.request(prompt)
        except PromptError as error:
            self._fail(index, prompt.text, "prompt", str(error))
            return False
        serving = _Serving(index, prompt, request, self._begin_answer(request.prompt), live)
        self.events.write("start", index=index, session=serving.session, domain=prompt.domain, prompt=prompt.text)
        self._tell_of_context(serving)
        reading = asyncio.get_running_loop().call_later(READING_S, self._tell_of_reading, serving)
        try:
            async with aclosing(self.daemon.generate(request)) as items:
                async for item in items:
                    reading.cancel()
                    if isinstance(item, Fail):
                        if item.code == "target_changed" and not serving.token_ids:
                            return True
                        self._fail(index, prompt.text, item.code, item.what)
                        return False
                    statistics = self.daemon.session(request.session_id).statistics
                    self._show(serving, item)
                    if serving.answer.is_complete:
                        self._finish(serving, statistics)
                        return False
        finally:
            reading.cancel()
        return False

    def _tell_of_context(self, serving: _Serving) -> None:
        """Says, for the first such prompt only, that --max-tokens exceeds the room in the target's context."""
        welcome = self.daemon.link.welcome
        if welcome is None or self._told_of_context:
            return
        sentence = cut_notice(self.config.max_tokens, len(serving.request.prompt), welcome.context_len, "the target's")
        if sentence is not None:
            self._told_of_context = True
            self.reporter.say("prompt %d: " + sentence.text, serving.index + 1, *sentence.values)

    def _tell_of_reading(self, serving: _Serving) -> None:
        if self.daemon.link.connected:  # else that is told
            num_tokens = f"{len(serving.request.prompt):,}"
            self.reporter.say("prompt %d: the target is reading %s tokens", serving.index + 1, num_tokens)

    def _show(self, serving: _Serving, item: Deliver | Finish) -> None:
        piece = serving.answer.take(item)
        token_ids = [token.id for token in piece.tokens]
        serving.token_ids += token_ids
        serving.text += piece.text
        if serving.live and not self.events.enabled:
            print(piece.text, end="", flush=True)
        if isinstance(item, Deliver):
            told = {"index": serving.index, "session": serving.session, "token_ids": token_ids, "text": piece.text}
            self.events.write("tokens", **told, local=item.local, at=time.monotonic())

    def _finish(self, serving: _Serving, statistics: Statistics) -> None:
        self.unfinished.pop(serving.index, None)
        result = serving.result(statistics)
        self.results.append(result)
        self.events.write("finish", **result)
        answer = serving.answer
        if answer.num_local:
            what = f"{answer.num_local} of its {answer.num_tokens} tokens are the draft model's own"
            print(f"prompt {serving.index + 1}: {what}", file=sys.stderr, flush=True)
        if self.events.enabled:
            return
        if serving.live:
            print(flush=True)
        else:
            prompt = serving.prompt
            print(f"--- prompt {serving.index + 1} {prompt.domain}\n{prompt.text}{serving.text}", flush=True)

    def _fail(self, index: int, prompt: str, code: str, what: str) -> None:
        self.unfinished.pop(index, None)
        self._note_failure(index, prompt, code, what)
        print(f"prompt {index + 1} failed: {what} ({code})", file=sys.stderr, flush=True)

    def _note_failure(self, index: int, prompt: str, code: str, what: str) -> None:
        self.num_failed += 1
        self.results.append({"index": index, "prompt": prompt, "error": {"code": code, "what": what}})
        self.events.write("fail", index=index, code=code, what=what)
