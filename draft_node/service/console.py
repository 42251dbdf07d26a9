"""Runs prompts from the console, and writes texts or JSON events to standard output."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from draft_node.service import standard_input
from draft_node.service.answer import Piece
from draft_node.service.request import Begun, Ended, Wanted, drafting
from draft_node.service.service import Service
from goodspeed.drafting.sources import by_source
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import PromptError, ServiceError
from goodspeed.serving.defaults import SamplingRequest
from goodspeed.serving.events import EventLog
from goodspeed.serving.output import streams
from goodspeed.serving.prompts import Prompt, no_prompts_error, parse

DEFAULT_MAX_TOKENS = 150
"""Without an instruction to follow, a text may never end by itself."""


@dataclass(slots=True)
class _Serving:
    """A prompt with its text so far."""

    index: int
    prompt: Prompt
    seed: int
    begun: Begun
    started: float = field(default_factory=time.perf_counter)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""

    @property
    def session(self) -> str:
        return self.begun.session_id.hex()

    def result(self, ended: Ended) -> dict[str, Any]:
        """Returns the result as JSON members.

        `token_ids` include the token that completes a stop string; the text ends where the stop string begins. Later
        tokens count in the drafting statistics, but not in the answer's tokens.
        """
        statistics = ended.statistics
        told = statistics.by_name() | {"num_tokens": ended.num_tokens}
        return {
            "index": self.index,
            "session": self.session,
            "domain": self.prompt.domain,
            "prompt": self.prompt.text,
            "seed": self.seed,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": ended.reason,
            "elapsed_s": time.perf_counter() - self.started,
            "draft_acceptance_rate": statistics.draft_acceptance_rate,
            **told,
            "slo": ended.kept.described() if ended.kept is not None else None,
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
    ) -> None:
        """prompts: None: read from standard input."""
        self.config = config
        self.daemon = daemon
        self.events = events
        self.prompts = prompts
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0
        self.unfinished = {index: prompt.text for index, prompt in enumerate(prompts or [])}  # neither done nor failed
        self._service = Service(daemon, vocabulary, max_waiting=config.max_sessions)

    async def run(self) -> None:
        """Runs all prompts, up to the node's `max_sessions` at once.

        PromptError if standard input has no prompt, e.g. an empty file.
        """
        slots = asyncio.Semaphore(self.config.max_sessions)
        try:
            async with asyncio.TaskGroup() as tasks, aclosing(self._prompts()) as prompts:
                async for index, prompt in prompts:
                    await streams.room()
                    await slots.acquire()
                    tasks.create_task(self._serve(index, prompt)).add_done_callback(lambda _: slots.release())
        except* PromptError as group:  # of standard input; `_serve` reports a prompt's own errors
            raise group.exceptions[0] from None
        finally:
            self._service.close()

    async def _prompts(self) -> AsyncGenerator[tuple[int, Prompt], None]:
        """Yields prompts with index: from the list, or from non-blank lines of standard input."""
        if self.prompts is not None:
            for index, prompt in enumerate(self.prompts):
                yield index, prompt
            return
        number, index, jsonl = 0, -1, self.config.prompts == standard_input.NAME
        async with aclosing(standard_input.lines()) as lines:
            async for line in lines:
                number += 1
                if not line.strip():
                    continue
                index += 1
                try:
                    prompt = parse(line, f"standard input, line {number}") if jsonl else Prompt(line)
                except PromptError as error:
                    self._fail(index, line, "prompt", str(error))
                    await streams.room()
                else:
                    self.unfinished[index] = prompt.text
                    yield index, prompt
        if index < 0:
            raise no_prompts_error("standard input", jsonl=jsonl)

    async def wanted(self, prompt: Prompt) -> Wanted:
        """Returns the request for a prompt; its seed is random if none is set.

        Waits for the verify node, whose Welcome has the defaults. PromptError if the prompt cannot be encoded,
        ServiceError if the tier does not exist.
        """
        config, service = self.config, self._service
        seed = prompt.seed if prompt.seed is not None else config.seed
        asked = SamplingRequest(seed=seed if seed is not None else secrets.randbits(62), temperature=config.temperature)
        token_ids = await service.encode(prompt.text, "")
        await self.daemon.connected.wait()
        drafter, max_draft = drafting(prompt.drafter or config.drafter, config.max_draft)
        asked = asked.filled(config.node_sampling)
        sampling, stop, rules = asked.resolve(service.defaults(chat=False))
        return Wanted(
            prompt=token_ids,
            sampling=sampling,
            max_tokens=config.max_tokens or DEFAULT_MAX_TOKENS,
            stop=stop,
            logit_rules=rules,
            verification=config.verification,
            max_draft=max_draft,
            drafter=drafter,
            prefix_cache=prompt.drafter is None,  # a text of the target alone takes as long as if it came first
            slo=service.levels.default if config.tier is None else service.levels.tier(config.tier),
            target=service.target_fingerprint,
            resolve=asked.resolve,
        )

    def give_up(self, code: str, what: str) -> None:
        """Reports every unfinished prompt as failed for this reason."""
        for index, prompt in self.unfinished.items():
            self._note_failure(index, prompt, code, what)
        self.unfinished.clear()

    async def _serve(self, index: int, prompt: Prompt) -> None:
        """Runs one prompt to its end; reports a failure, and lets other prompts go on."""
        try:
            wanted = await self.wanted(prompt)
            serving = _Serving(index, prompt, wanted.sampling.seed, Begun(None))
            async with aclosing(self._service.write(wanted)) as items:
                async for item in items:
                    self._take(serving, item)
                    await streams.room()
        except PromptError as error:
            self._fail(index, prompt.text, "prompt", str(error))
        except ServiceError as error:
            self._fail(index, prompt.text, error.code, error.what)

    def _take(self, serving: _Serving, item: Begun | Piece | Ended) -> None:
        match item:
            case Begun():
                serving.begun, serving.token_ids, serving.text = item, [], ""
                told = {"domain": serving.prompt.domain, "prompt": serving.prompt.text}
                self.events.write("start", index=serving.index, session=serving.session, **told)
            case Piece():
                self._show(serving, item)
            case Ended():
                self._finish(serving, item)

    def _show(self, serving: _Serving, piece: Piece) -> None:
        token_ids = [token.id for token in piece.tokens]
        serving.token_ids += token_ids
        serving.text += piece.text
        if piece.tokens:
            told = {"index": serving.index, "session": serving.session, "token_ids": token_ids, "text": piece.text}
            so_far = serving.begun.statistics
            told |= {"drafted": by_source(so_far.drafted), "accepted": by_source(so_far.accepted)}
            self.events.write("tokens", **told, at=time.monotonic())

    def _finish(self, serving: _Serving, ended: Ended) -> None:
        self.unfinished.pop(serving.index, None)
        result = serving.result(ended)
        self.results.append(result)
        self.events.write("finish", **result)
        if not self.events.enabled:
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
