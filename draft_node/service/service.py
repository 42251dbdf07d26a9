"""Generates texts for users: admits or refuses, restarts and counts texts, and drains the node.

    service = Service(daemon, vocabulary, max_waiting=64)
    generation = service.generation(prompt, SamplingRequest(seed=1), max_tokens=100)
    async with aclosing(service.write(generation)) as pieces:
        async for piece in pieces: ...

`service.stats` (`request_stats.py`) counts every text's outcome for `/metrics`.
"""

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from draft_node.core.actions import Fail
from draft_node.core.generation import Generation
from draft_node.parsing.parser import ONLY_CONTENT, ParserSettings
from draft_node.process.daemon import DraftDaemon
from draft_node.service.async_tokenizer import AsyncTokenizer
from draft_node.service.chat_support import ChatSupport
from draft_node.service.fair_queue import FairQueue
from draft_node.service.output_buffer import OutputBuffer
from draft_node.service.output_processor import Begun, Ended, Item, OutputProcessor
from draft_node.service.request_stats import RequestRecord, RequestStats
from draft_node.service.slo_tiers import SloTiers
from draft_node.service.token_text import TokenTexts
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.trial import Trial
from goodspeed.engine.model_files.names import NO_MODEL
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import Busy, ConstraintError, Draining, ProcessError, RequestRefused, ServiceError, VerifyAway
from goodspeed.serving import sampling_defaults
from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, MAX_STOP_IDS, Drafter
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Defaults
from goodspeed.wire.messages import Sampling

logger = logging.getLogger("goodspeed.draft")

SALT_BYTES = 16

MENDING_S = 5.0
"""Shorter absences of the verify node make new texts wait instead of refusing them: reconnecting takes a tenth of a
second nearby, and five seconds over a link with a delay of one second."""

LARGE_BODY = 1 << 15
"""Bytes from which a body is parsed on another thread, to keep the event loop free."""

MAX_BYTES = 1 << 26
"""Most bytes of one user's large bodies that wait to be parsed: 16 bodies of 4 MiB."""

TOO_MANY_BODIES = "your earlier requests still wait to be parsed; wait for their answers, then ask again"

MAX_CHARS = 1 << 18
"""Most characters of one user's constraints that wait or are being compiled."""

TOO_MANY_SCHEMAS = "the schemas of your earlier requests are still being compiled; wait for the answers, then ask again"

LARGE_ANSWER = 1 << 11
"""Tokens and alternatives from which an answer is serialized on another thread."""


ERRORS = {"verify_away": VerifyAway, "draining": Draining, "closed": Draining, "not_promised": Busy}
"""Errors for users by the code of a session's failure; RequestRefused for the others."""


def body_queue() -> FairQueue:
    """Returns the queue for work whose time is that of reading a body; size in bytes.

    One at a time: several threads would pass the GIL to each other, and the event loop would wait for all of them.
    """
    return FairQueue(MAX_BYTES, TOO_MANY_BODIES, "bodies", at_once=LARGE_BODY)


def answer_queue() -> FairQueue:
    """Returns the queue for serializing answers; size in tokens and alternatives.

    Without a bound for one user: the texts were admitted and are complete, so none is refused now.
    """
    return FairQueue(sys.maxsize, "", "answers", at_once=LARGE_ANSWER)


class Service:
    """Generates texts through a draft daemon, which the caller runs (`daemon.serve`)."""

    def __init__(
        self,
        daemon: DraftDaemon,
        vocabulary: Vocabulary,
        *,
        max_waiting: int,
        chats: ChatSupport | None = None,
        refuses_control_tokens: bool = False,
    ) -> None:
        """max_waiting: most texts in the daemon's queue; further ones are refused, but for users below an equal share.

        chats: chat template and formats; None: detected from the tokenizer's template. refuses_control_tokens: of
        conversations (`AsyncTokenizer`).
        """
        self.draining = False  # True: no further text is admitted
        self._daemon = daemon
        self._vocabulary = vocabulary
        self.draft_fingerprint = vocabulary.model_fingerprint
        self._longest_token = max(map(len, vocabulary.tokenizer.get_vocab()), default=1)  # characters
        self.max_waiting = max_waiting
        self.stats = RequestStats()
        self.chats = chats or ChatSupport.of(vocabulary.tokenizer)
        self._token_texts = TokenTexts(vocabulary.tokenizer)
        self._secret = secrets.token_bytes(32)  # of the salts: a new process has others
        self.tokenizer = AsyncTokenizer(
            vocabulary.tokenizer, lambda: self.vocab_size, refuses_control_tokens=refuses_control_tokens
        )
        drafting = daemon.drafting
        shared = drafting.drafter.constraints if drafting is not None else None
        self.outputs = set[OutputBuffer]()  # of requests in progress
        constraints = shared or Constraints(vocabulary, Trial(vocabulary))
        constraints.prepare()
        self.compiler = ConstraintCompiler(constraints)
        self.bodies, self.answers = body_queue(), answer_queue()

    # -- texts -----------------------------------------------------------------------------------------------------

    def generation(
        self,
        prompt: tuple[int, ...],
        asked: SamplingRequest,
        max_tokens: int,
        *,
        user: str = "",
        prefix_cache: bool = True,
        drafter: Drafter = "auto",
        max_draft: int = MAX_DRAFT,
        **others: Any,
    ) -> Generation:
        """Builds the request for a text under the present target's defaults; RequestRefused for too many stop tokens.

        prefix_cache: other texts of its user may share its keys and values. others: fields of `Generation`.
        """
        if drafter == "none" or max_draft == 0:
            drafter, max_draft = "none", 0
        blank = Generation(
            session_id=b"",
            prompt=prompt,
            sampling=Sampling(),
            max_tokens=max_tokens,
            max_draft=max_draft,
            drafter=drafter,
            user=user,
            cache_salt=self._salt_of(user) if prefix_cache else b"",
            asked_at=time.monotonic(),
            asked=asked,
            **others,
        )
        return self._under_target(blank)

    def _salt_of(self, user: str) -> bytes:
        """Returns the prefix cache salt of a user's texts. user: empty for a file of prompts, the operator's."""
        return blake2b(user.encode(), digest_size=SALT_BYTES, key=self._secret, person=b"cache salt").digest()

    def _under_target(self, generation: Generation) -> Generation:
        """Returns the same request in a session of its own, under the present target's defaults."""
        anew = replace(generation, session_id=secrets.token_bytes(16), target=self.target_fingerprint)
        if generation.asked is None:
            return anew
        sampling, stop, rules = generation.asked.resolve(self.defaults(chat=generation.is_chat))
        stop_ids = self.stop_ids(generation.asked)
        return replace(anew, sampling=sampling, stop=stop, logit_rules=rules, stop_ids=stop_ids)

    async def write(self, generation: Generation, parser: ParserSettings = ONLY_CONTENT) -> AsyncGenerator[Item, None]:
        """Yields Begun, pieces of text as they become certain, then Ended. Waits in the queue for admission.

        If the verify node returns with another target, a text restarts (yields Begun again) with that target's
        defaults, if no token was delivered. Any other text fails with the code `target_changed`.

        Raises Busy, Draining or VerifyAway at the first step; later VerifyAway (the verify node was away for too long),
        Draining (the drain time is over) or RequestRefused. Leaving the iteration early (`aclosing`, or a cancelled
        task) closes the session at both nodes. parser: how to parse the text.
        """
        with self._counted(generation) as text:
            self._check_admission(generation)
            while True:
                answer = OutputProcessor(self._vocabulary.tokenizer, self._token_texts, generation, parser)
                try:
                    async with aclosing(self._attempt(generation, text, answer)) as items:
                        async for item in items:
                            yield item
                    return
                except RequestRefused as error:
                    if error.code != "target_changed" or text.times.num_tokens:
                        raise
                    logger.info("restarting a text: the verify node has another target")
                    generation = self._under_target(generation)

    async def _attempt(
        self, request: Generation, text: RequestRecord, answer: OutputProcessor
    ) -> AsyncGenerator[Item, None]:
        """Generates the text with one target, in one session."""
        session, kept, num_thinking = None, None, 0
        async with self.compiler.held(request), aclosing(self._daemon.generate(request)) as items:
            async for item in items:
                if isinstance(item, Fail):
                    raise _error(item)
                if session is None:
                    session = self._daemon.core.sessions[request.session_id]
                    yield Begun(session.target, request.session_id)
                piece = answer.take(item)
                text.delivered(len(piece.tokens), time.monotonic(), answer.num_thinking - num_thinking)
                num_thinking = answer.num_thinking
                if answer.is_complete:
                    kept = text.finished(answer.reason, time.monotonic(), session.promised)
                    break
                yield piece
        if session is None:
            raise RuntimeError("a session ended without a last item")
        if piece.parts or piece.tokens or piece.prompt is not None:
            yield piece
        yield Ended(answer.reason, answer.stop, answer.num_tokens, session.statistics, kept, answer.num_thinking)

    def _check_admission(self, generation: Generation) -> None:
        """Raises a ServiceError with the reason if the text is not admitted."""
        if self.draining:
            raise Draining("draining", "this draft node is shutting down; ask another one")
        if not self.is_within_reach:
            raise VerifyAway("verify_away", self.absence)
        self.check_room(generation)

    def check_room(self, generation: Generation, num_texts: int = 1) -> None:
        """Raises Busy if so many texts like this one would be more than its user may have in the queue."""
        queue = self._daemon.core.queue
        num_more = num_texts - queue.num_free(wants_prompt=generation.num_prompt_logprobs is not None)
        num_own, most = queue.waiting_of(generation.user, self.max_waiting)
        if num_more > 0 and num_own + num_more > most:
            what = f"{queue.num_running} texts are running and {queue.num_waiting} wait, {num_own} of them your own"
            raise Busy("busy", f"{what}; at most {most} of yours may wait now; ask again later")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Counts a request that is refused before its texts begin, as one failed text."""
        try:
            yield
        except ServiceError as error:
            self.stats.count_failure(error.code)
            raise

    @contextmanager
    def _counted(self, generation: Generation) -> Iterator[RequestRecord]:
        text = self.stats.begin(len(generation.prompt), generation.asked_at, generation.slo)
        try:
            yield text
        except Exception as error:
            text.failed(error.code if isinstance(error, ServiceError) else "internal")
            raise
        finally:
            text.left()

    async def cut_off(self, waited_s: float) -> None:
        """Closes the sessions in progress at both nodes, those in the queue too; their users get Draining."""
        what = f"this draft node is shutting down, and the text was not finished within {waited_s:g} s"
        await self._daemon.end_generations(Fail("draining", f"{what}; ask another one"))

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if a new text can begin at once, provided that a slot is free."""
        return self._daemon.link.connected and not self.draining

    @property
    def is_within_reach(self) -> bool:
        """True if the verify node is connected, or was a moment ago."""
        away_s = self._daemon.core.away_s(time.monotonic())
        return self._daemon.link.welcome is not None and away_s <= min(MENDING_S, self._daemon.core.connect_timeout_s)

    @property
    def absence(self) -> str:
        """The error message for users while the verify node is out of reach."""
        return f"{self._daemon.link.absence(time.monotonic())}; ask again later"

    @property
    def context_len(self) -> int:
        """Most tokens of prompt and output together at the target; 0 while the verify node is out of reach."""
        welcome = self._daemon.link.welcome
        return welcome.context_len if welcome is not None and self.is_within_reach else 0

    @property
    def draft_model(self) -> str:
        return self._daemon.link.hello.draft_model or NO_MODEL

    @property
    def max_chars(self) -> int:
        """Most characters that can fit into the context: its length times the longest token.

        While the verify node is away, the context is the target's latest known one, else the draft model's.
        """
        welcome, drafter = self._daemon.link.welcome, self._daemon.drafter
        own = MAX_CONTEXT if drafter is None else drafter.context_len
        return (own if welcome is None else welcome.context_len) * self._longest_token

    @property
    def vocab_size(self) -> int:
        """Bound of valid token ids: the target's, or this node's until a target has been seen."""
        welcome = self._daemon.link.welcome
        return self._vocabulary.num_tokens if welcome is None else welcome.vocab_size

    # -- from the target -------------------------------------------------------------------------------------------

    @property
    def slo_tiers(self) -> SloTiers:
        return SloTiers(self._daemon.link)

    def defaults(self, *, chat: bool) -> Defaults:
        """Returns sampling defaults and stop strings for requests without their own."""
        return sampling_defaults.known(self._daemon.link.welcome, self._vocabulary.settings, chat=chat)

    @property
    def target_name(self) -> str | None:
        """Name of the latest target; None before the first one, and for a target without a name."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target or None

    @property
    def target_fingerprint(self) -> str | None:
        """Fingerprint of the latest target; None before the first one."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target_fingerprint

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """EOS tokens: the target's, or the draft model's until a target has been seen."""
        welcome = self._daemon.link.welcome
        return tuple(welcome.eos_ids if welcome is not None else self._vocabulary.eos_ids)

    def stop_ids(self, asked: SamplingRequest) -> tuple[int, ...]:
        """Returns a text's stop tokens: its own, and the target's unless `ignore_eos`; RequestRefused if too many."""
        eos = () if asked.ignore_eos else self.eos_ids
        found = tuple(dict.fromkeys((*eos, *asked.stop_ids)))
        if len(found) > MAX_STOP_IDS:
            num_own = len(found) - len(set(asked.stop_ids))
            what = f"stop_token_ids: {len(found) - num_own} in addition to {num_own} of the target's own are too many"
            raise RequestRefused("malformed", f"{what}; send at most {MAX_STOP_IDS - num_own}, or ignore_eos")
        return found

    def close(self) -> None:
        """Ends the threads. Call after the final text has ended."""
        for queue in (self.tokenizer, self.compiler, self.bodies, self.answers):
            queue.close()


class ConstraintCompiler:
    """Compiles constraints on a thread, fairly by user: `check` before admission, `held` while a text is generated."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._turns = FairQueue(MAX_CHARS, TOO_MANY_SCHEMAS, "constraints")

    async def check(self, constraint: Constraint, user: str) -> None:
        """Raises ConstraintError if a constraint cannot be served; Busy if too much of this user's work waits.

        ServiceError if no constraint can be compiled now.
        """
        try:
            problem = await self._turns.run(user, len(constraint.source), lambda: self._constraints.tried(constraint))
        except ProcessError as error:
            logger.warning("no constraint can be compiled now", extra={"why": error})
            raise ServiceError("constraint_compiler", str(error)) from error
        if problem:
            raise ConstraintError(problem)

    @asynccontextmanager
    async def held(self, request: Generation) -> AsyncGenerator[None, None]:
        """Compiles the request's constraint for the draft model meanwhile, and holds it until the session ends.

        Begins at once, so that nothing changes between a text's admission and its place in the queue. Until the
        constraint is compiled, and if too much of this user's work waits, drafts ignore it, which only lowers the
        acceptance rate. Leaves the refusal of a constraint that does not compile to the verify node.
        """
        if request.constraint is None:
            yield
            return
        holding = asyncio.create_task(self._hold(request.session_id, request.constraint, request.user))
        try:
            yield
        finally:
            holding.cancel()
            self._constraints.release(request.session_id)

    async def _hold(self, session_id: bytes, constraint: Constraint, user: str) -> None:
        work = partial(self._constraints.compiled, constraint)
        with suppress(Busy):
            compiled = await self._turns.run(user, len(constraint.source), work)
            if isinstance(compiled, Matcher):
                self._constraints.hold(session_id, compiled)

    def close(self) -> None:
        self._turns.close()


def _error(fail: Fail) -> ServiceError:
    """Converts a session's failure to the error that its user gets."""
    return ERRORS.get(fail.code, RequestRefused)(fail.code, fail.what)
