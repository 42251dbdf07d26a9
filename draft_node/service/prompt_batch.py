"""Runs the prompts of a file (`--prompts`), and writes JSON events to standard output."""

import asyncio
import secrets
import sys
import time
from contextlib import aclosing
from typing import Any

from draft_node.config import DraftConfig
from draft_node.core.generation import Generation
from draft_node.process.daemon import DraftDaemon
from draft_node.service.output_processor import Begun, Ended, Piece
from draft_node.service.service import Service
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import PromptError, ServiceError
from goodspeed.serving import output
from goodspeed.serving.events import EventLog
from goodspeed.serving.prompts import Prompt
from goodspeed.serving.sampling_defaults import SamplingRequest

DEFAULT_MAX_TOKENS = 150
"""Without an instruction to follow, a text may never end by itself."""


class PromptBatch:
    """Runs a file's prompts through a draft node. `results` has a row of JSON members for each that has ended."""

    def __init__(
        self,
        config: DraftConfig,
        vocabulary: Vocabulary,
        daemon: DraftDaemon,
        events: EventLog,
        prompts: list[Prompt],
    ) -> None:
        self.config = config
        self.daemon = daemon
        self.events = events
        self.prompts = prompts
        self.results: list[dict[str, Any]] = []
        self.num_failed = 0
        self.unfinished = {index: prompt.text for index, prompt in enumerate(prompts)}  # neither done nor failed
        self._service = Service(daemon, vocabulary, max_waiting=config.max_sessions)

    async def run(self) -> None:
        """Runs all prompts, up to the node's `max_sessions` at once."""
        slots = asyncio.Semaphore(self.config.max_sessions)
        try:
            async with asyncio.TaskGroup() as tasks:
                for index, prompt in enumerate(self.prompts):
                    await output.room()
                    await slots.acquire()
                    tasks.create_task(self._serve(index, prompt)).add_done_callback(lambda _: slots.release())
        finally:
            self._service.close()

    async def generation(self, prompt: Prompt) -> Generation:
        """Returns the request for a prompt; its seed is random if none is set.

        Waits for the verify node, whose Welcome has the defaults. PromptError if the prompt cannot be encoded.
        """
        config, service = self.config, self._service
        seed = prompt.seed if prompt.seed is not None else secrets.randbits(62)
        asked = SamplingRequest(seed=seed, temperature=config.temperature)
        token_ids = await service.tokenizer.encode(prompt.text, "")
        await self.daemon.connected.wait()
        return service.generation(
            token_ids,
            asked.filled(config.node_sampling),
            config.max_tokens or DEFAULT_MAX_TOKENS,
            verification=config.verification,
            max_draft=config.max_draft,
            drafter=prompt.drafter or config.drafter,
            prefix_cache=prompt.drafter is None,  # a text of the target alone takes as long as if it came first
            slo=service.slo_tiers.default,
        )

    def give_up(self, code: str, what: str) -> None:
        """Reports every unfinished prompt as failed for this reason."""
        for index in list(self.unfinished):
            self._fail(index, code, what)

    async def _serve(self, index: int, prompt: Prompt) -> None:
        """Runs one prompt to its end; reports a failure, and lets other prompts go on."""
        try:
            await self._write(index, prompt)
        except (PromptError, ServiceError) as error:
            code, what = ("prompt", str(error)) if isinstance(error, PromptError) else (error.code, error.what)
            self._fail(index, code, what)
            print(f"prompt {index + 1} failed: {what} ({code})", file=sys.stderr, flush=True)

    async def _write(self, index: int, prompt: Prompt) -> None:
        """Writes one text. One that begins anew has another session."""
        generation, started = await self.generation(prompt), time.perf_counter()
        told = dict[str, Any]()
        token_ids, text = list[int](), ""
        async with aclosing(self._service.write(generation)) as items:
            async for item in items:
                match item:
                    case Begun():
                        told = {"index": index, "session": item.session_id.hex()}
                        token_ids, text = [], ""
                    case Piece():
                        new = [token.id for token in item.tokens]
                        token_ids += new
                        text += item.text
                        if new:
                            self.events.write("tokens", **told, token_ids=new, text=item.text, at=time.monotonic())
                    case Ended():
                        told |= {"domain": prompt.domain, "prompt": prompt.text, "seed": generation.sampling.seed}
                        self._finish(told | {"text": text, "token_ids": token_ids}, item, time.perf_counter() - started)
                await output.room()

    def _finish(self, told: dict[str, Any], ended: Ended, elapsed_s: float) -> None:
        """Reports a text that is complete.

        `token_ids` include the token that completes a stop string; the text ends where the stop string begins. Later
        tokens count in the drafting statistics, but not in the answer's tokens.
        """
        result = {
            **told,
            "finish_reason": ended.reason,
            "elapsed_s": elapsed_s,
            "draft_acceptance_rate": ended.statistics.draft_acceptance_rate,
            **ended.statistics.by_name(),
            "num_tokens": ended.num_tokens,
            "slo": ended.kept.described() if ended.kept is not None else None,
        }
        del self.unfinished[told["index"]]
        self.results.append(result)
        self.events.write("finish", **result)

    def _fail(self, index: int, code: str, what: str) -> None:
        prompt = self.unfinished.pop(index)
        self.num_failed += 1
        self.results.append({"index": index, "prompt": prompt, "error": {"code": code, "what": what}})
        self.events.write("fail", index=index, code=code, what=what)
