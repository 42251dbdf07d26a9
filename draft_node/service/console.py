"""Serves prompts on the console: writes verified text, or JSON events, to standard output."""

import asyncio
import secrets
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from draft_node.config import DraftConfig
from draft_node.core.actions import by_source
from draft_node.daemon import DraftDaemon
from draft_node.service import standard_input
from draft_node.service.answer import Piece
from draft_node.service.request import Wanted, drafting
from draft_node.service.writer import Writer, Writing, begins_anew
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import PromptError, RequestRefused, ServiceError
from goodspeed.serving import streams
from goodspeed.serving.defaults import SamplingRequest
from goodspeed.serving.events import QUIET, EventLog, Reporter
from goodspeed.serving.prompts import Prompt, no_prompts_error, parse
from goodspeed.slo.kept import Times


@dataclass(slots=True)
class _Serving:
    """A prompt with the text that has been written for it so far."""

    index: int
    prompt: Prompt
    writing: Writing
    times: Times
    live: bool  # shown as it comes
    started: float = field(default_factory=time.perf_counter)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""

    @property
    def session(self) -> str:
        return self.writing.request.session_id.hex()

    def result(self) -> dict[str, Any]:
        """`token_ids` go up to the one that completes a stop string; the text ends where the stop string begins.

        What came after it counts for drafting, and not as a token of the answer.
        """
        answer, statistics = self.writing.answer, self.writing.statistics
        told = statistics.by_name() | {"num_tokens": answer.num_tokens, "num_local": answer.num_local}
        slo = self.writing.request.slo
        return {
            "index": self.index,
            "session": self.session,
            "domain": self.prompt.domain,
            "prompt": self.prompt.text,
            "seed": self.writing.request.sampling.seed,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": answer.reason,
            "elapsed_s": time.perf_counter() - self.started,
            "acceptance_rate": statistics.acceptance_rate,
            **told,
            "slo": self.times.kept(slo, self.writing.promised).described() if slo is not None else None,
        }


class Console:
    """Runs prompts through a draft node and prints their texts or events."""

    def __init__(
        self,
        config: DraftConfig,
        vocabulary: Vocabulary,
        daemon: DraftDaemon,
        events: EventLog,
        prompts: list[Prompt] | None,
        reporter: Reporter = QUIET,
    ) -> None:
        """prompts: None for those of standard input."""
        self.config = config
        self.vocabulary = vocabulary
        self.daemon = daemon
        self.events = events
        self.prompts = prompts
        self.reporter = reporter
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0
        self.unfinished = {index: prompt.text for index, prompt in enumerate(prompts or [])}  # and not failed
        self._writer = Writer(daemon, vocabulary)
        self._encoding = asyncio.Lock()  # tokenizers do not like to be used twice at a time

    async def run(self) -> None:
        """Serves all prompts, as many at once as the node serves together."""
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
                    await streams.room()
                else:
                    self.unfinished[index] = prompt.text
                    await self._begin(tasks, slots, index, prompt, live=not jsonl)
                index += 1
        if index == 0:
            raise no_prompts_error("standard input", jsonl=jsonl)

    async def _begin(
        self, tasks: asyncio.TaskGroup, slots: asyncio.Semaphore, index: int, prompt: Prompt, *, live: bool
    ) -> None:
        """Waits for a free slot and for whoever reads the results, and no longer."""
        await streams.room()
        await slots.acquire()
        serving = tasks.create_task(self._serve(index, prompt, live=live))
        serving.add_done_callback(lambda _: slots.release())

    async def wanted(self, prompt: Prompt) -> Wanted:
        """The text that a prompt asks for; without any seed it gets a random one.

        PromptError if it cannot be, ServiceError if there is no such tier.

        Waits for the verify node, whose Welcome has the defaults; with `--fallback local`, for --connect-timeout-s at
        most.
        """
        config = self.config
        seed = prompt.seed if prompt.seed is not None else config.seed
        asked = SamplingRequest(
            seed=seed if seed is not None else secrets.randbits(62),
            temperature=config.temperature,
        )
        async with self._encoding:
            token_ids = await asyncio.to_thread(encode_prompt, self.vocabulary.tokenizer, prompt.text)
        await self.daemon.ready.wait()
        drafter, max_draft = drafting(config.drafter, config.max_draft)
        sampling, stop, rules = asked.resolve(self._writer.defaults(chat=False))
        return Wanted(
            prompt=tuple(token_ids),
            sampling=sampling,
            max_tokens=config.max_tokens,
            stop=stop,
            logit_rules=rules,
            verification=config.verification,
            max_draft=max_draft,
            drafter=drafter,
            slo=self._writer.levels.default if config.tier is None else self._writer.levels.tier(config.tier),
            target=self._writer.target_fingerprint,
            resolve=asked.resolve,
        )

    def give_up(self, code: str, what: str) -> None:
        """Reports every unfinished prompt as failed, with this reason."""
        for index, prompt in self.unfinished.items():
            self._note_failure(index, prompt, code, what)
        self.unfinished.clear()

    async def _serve(self, index: int, prompt: Prompt, *, live: bool) -> None:
        """Serves one prompt from beginning to end; a failed one is reported, and the others go on."""
        try:
            wanted = await self.wanted(prompt)
        except PromptError as error:
            self._fail(index, prompt.text, "prompt", str(error))
            return
        except ServiceError as error:
            self._fail(index, prompt.text, error.code, error.what)
            return
        asked_at = time.monotonic()
        while await self._attempt(_Serving(index, prompt, self._writer.begin(wanted, asked_at), Times(asked_at), live)):
            await self.daemon.ready.wait()
            wanted = self._writer.renewed(wanted)

    async def _attempt(self, serving: _Serving) -> bool:
        """Serves the prompt with one target. Returns whether it has to be asked for again under the next target."""
        index, prompt = serving.index, serving.prompt
        self.events.write("start", index=index, session=serving.session, domain=prompt.domain, prompt=prompt.text)
        try:
            async with aclosing(serving.writing.pieces()) as pieces:
                async for piece in pieces:
                    self._show(serving, piece)
                    if serving.writing.answer.is_complete:
                        self._finish(serving)
                    await streams.room()
        except ServiceError as error:
            if isinstance(error, RequestRefused) and begins_anew(error, len(serving.token_ids)):
                return True
            self._fail(index, prompt.text, error.code, error.what)
        return False

    def _show(self, serving: _Serving, piece: Piece) -> None:
        token_ids = [token.id for token in piece.tokens]
        serving.times.delivered(len(token_ids), time.monotonic())
        serving.token_ids += token_ids
        serving.text += piece.text
        if serving.live and not self.events.enabled:
            print(piece.text, end="", flush=True)
        if piece.tokens:
            told = {"index": serving.index, "session": serving.session, "token_ids": token_ids, "text": piece.text}
            so_far = serving.writing.statistics
            told |= {"drafted": by_source(so_far.drafted), "accepted": by_source(so_far.accepted)}
            self.events.write("tokens", **told, local=piece.tokens[0].local, at=time.monotonic())

    def _finish(self, serving: _Serving) -> None:
        self.unfinished.pop(serving.index, None)
        result = serving.result()
        self.results.append(result)
        self.events.write("finish", **result)
        answer = serving.writing.answer
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
