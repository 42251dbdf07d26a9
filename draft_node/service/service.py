"""Writes texts for users: admits or refuses them, begins them anew, counts them and drains.

    service = Service(daemon, vocabulary, max_waiting=64)
    async with aclosing(service.write(Wanted(prompt=..., sampling=..., max_tokens=100))) as pieces:
        async for piece in pieces: ...

`service.texts` (`counts.py`) counts the outcome of every text for `/metrics`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from draft_node.core.actions import Fail
from draft_node.core.counts import Text, Texts
from draft_node.daemon import DraftDaemon
from draft_node.service.answer import Piece
from draft_node.service.chat_forms import ChatForms
from draft_node.service.queues import Encoder, Forms
from draft_node.service.request import Begun, Ended, Target, Wanted
from draft_node.service.writer import Levels, Writer, begins_anew
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, leaves_blank
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import Busy, Draining, RequestRefused, ServiceError, VerifyAway
from goodspeed.serving.options import NO_MODEL
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Defaults

logger = logging.getLogger("goodspeed.draft")

MENDING_S = 5.0
"""If the verify node was there less than this long ago, new texts wait for it instead of being refused: a broken
connection is made anew in a tenth of a second nearby, and in five seconds where the other side is a second away."""


class Service:
    """Writes texts through a draft daemon that somebody else runs (`daemon.serve`)."""

    def __init__(
        self,
        daemon: DraftDaemon,
        vocabulary: Vocabulary,
        *,
        max_waiting: int,
        chats: ChatForms | None = None,
    ) -> None:
        """max_waiting: texts that wait for one of the daemon's places; one more is refused.

        chats: the forms of its chats; None: those that the tokenizer's template tells.
        """
        self.draining = False
        self.max_waiting = max_waiting
        self.texts = Texts()
        self._daemon = daemon
        self._vocabulary = vocabulary
        self._writer = Writer(daemon, vocabulary)
        self._longest_token = max(map(len, vocabulary.tokenizer.get_vocab()), default=1)  # characters
        self._num_writing = 0
        self._idle = asyncio.Event()  # nothing is being written
        self._idle.set()
        self._encoder = Encoder(vocabulary.tokenizer)
        self._chats = chats or ChatForms.of(vocabulary.tokenizer)
        drafting = daemon.drafting
        shared = drafting.drafter.constraints if drafting is not None else None
        self._forms = Forms(shared or Constraints(vocabulary, Trial(vocabulary)))

    # -- state ---------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a new text can begin at once, provided that a place is free."""
        return (self._daemon.link.connected or self.is_local) and not self.draining

    @property
    def is_within_reach(self) -> bool:
        """Whether the verify node is there, or was a moment ago."""
        away_s = self._daemon.away_s(time.monotonic())
        return self._daemon.link.welcome is not None and away_s <= min(MENDING_S, self._daemon.connect_timeout_s)

    @property
    def is_local(self) -> bool:
        """Whether the draft model writes alone now, since the verify node is away."""
        return self._daemon.is_local

    @property
    def absence(self) -> str:
        """What a user is told while the verify node is out of reach."""
        return f"{self._daemon.link.absence(time.monotonic())}; ask again later"

    @property
    def context_len(self) -> int:
        """Prompt and generated tokens together; 0 while the verify node is out of reach: it is the target's.

        While the draft model writes alone, it is the smaller one of both.
        """
        welcome = self._daemon.link.welcome
        if self.is_local:
            local = self._daemon.core.context_len
            return local if welcome is None else min(local, welcome.context_len)
        return welcome.context_len if welcome is not None and self.is_within_reach else 0

    @property
    def target(self) -> Target:
        """The target that writes texts now."""
        welcome = self._daemon.link.welcome
        if welcome is None or not self.is_within_reach:
            return Target()
        return Target(welcome.target, welcome.target_fingerprint)

    @property
    def target_fingerprint(self) -> str | None:
        """The fingerprint of the target that was seen last; None before there was one."""
        return self._writer.target_fingerprint

    @property
    def draft_fingerprint(self) -> str:
        return self._vocabulary.model_fingerprint

    @property
    def draft_model(self) -> str:
        """The draft model's name, as others may see it."""
        return self._daemon.link.hello.draft_model or NO_MODEL

    @property
    def max_chars(self) -> int:
        """The most characters that can fit into the context: its tokens times the longest token.

        While the verify node is away: the target's last known context, or the draft model's if none is known.
        """
        welcome = self._daemon.link.welcome
        known = welcome.context_len if welcome is not None else self._daemon.core.context_len
        return (self.context_len or known) * self._longest_token

    @property
    def vocab_size(self) -> int:
        """Token ids below it mean something."""
        return self._vocabulary.num_tokens

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end each text that does not ignore them."""
        return self._writer.eos_ids

    def defaults(self, *, chat: bool) -> Defaults:
        """Sampling defaults and stop strings for requests that leave them out."""
        return self._writer.defaults(chat=chat)

    @property
    def chats(self) -> ChatForms:
        """What the chat template knows, and how answers are taken apart."""
        return self._chats

    @property
    def levels(self) -> Levels:
        """The service levels that a text may ask for."""
        return self._writer.levels

    @property
    def num_running(self) -> int:
        return self._daemon.num_running

    @property
    def num_waiting(self) -> int:
        return self._daemon.num_waiting

    # -- texts -----------------------------------------------------------------------------------------------------

    async def write(self, wanted: Wanted) -> AsyncGenerator[Begun | Piece | Ended, None]:
        """Begun, pieces of text as they are certain, then Ended. Waits its turn.

        Tokens that the draft model wrote alone are marked. When the verify node comes back with another target, a text
        of which nothing was delivered, or that `restarts`, begins anew (Begun a second time), with the defaults of that
        target; any other one fails with the code `target_changed`.

        Raises at the first step Busy, Draining or VerifyAway, and at any later one VerifyAway (it went and did not
        come back in time), Draining (no time is left) or RequestRefused. Leaving the iteration early (`aclosing`, or a
        cancelled task) closes the session at both nodes.
        """
        with self._counted(wanted) as text:
            self._let_in(wanted)
            while True:
                try:
                    async with aclosing(self._attempt(wanted, text)) as items:
                        async for item in items:
                            yield item
                    return
                except RequestRefused as error:
                    if not begins_anew(error, text.num_tokens, restarts=wanted.restarts):
                        raise
                    logger.info("a text begins anew: the verify node has another target")
                    text.begin_anew()
                    wanted = self._writer.renewed(wanted)

    async def _attempt(self, wanted: Wanted, text: Text) -> AsyncGenerator[Begun | Piece | Ended, None]:
        """Writes the text with one target, in one session."""
        writing = self._writer.begin(wanted, text.times.asked_at)
        answer, is_begun, kept = writing.answer, False, None
        async with self._forms.held(writing.request), aclosing(writing.pieces()) as pieces:
            async for piece in pieces:
                if not is_begun:
                    is_begun = True
                    yield Begun(writing.target)
                text.delivered(len(piece.tokens), time.monotonic())
                if answer.is_complete:
                    kept = text.finished(answer.reason, time.monotonic(), writing.promised)
                    break
                yield piece
        if piece.text or piece.tokens or piece.parts or piece.prompt is not None:
            yield piece
        yield Ended(
            answer.reason,
            answer.stop,
            answer.num_tokens,
            writing.statistics,
            answer.num_local,
            kept,
            answer.num_thinking,
        )

    def _let_in(self, wanted: Wanted) -> None:
        """Raises the ServiceError that tells the user why the text is not admitted."""
        if self.draining:
            raise Draining("draining", "this draft node is shutting down; ask another one")
        if self.is_local and (wanted.num_logprobs is not None or wanted.num_prompt_logprobs is not None):
            what = "the verify node is away, and log-probabilities are the target's own; ask without them, or later"
            raise VerifyAway("verify_away", what)
        if not self.is_within_reach and not self.is_local:
            raise VerifyAway("verify_away", self.absence)
        if self._daemon.is_full and self.num_waiting >= self.max_waiting:
            raise Busy("busy", f"{self.num_running} texts are written and {self.num_waiting} wait; ask again later")

    @contextmanager
    def _counted(self, wanted: Wanted) -> Iterator[Text]:
        """Counts a text from its request to its end; `drain` waits until none is left."""
        text = self.texts.begin(len(wanted.prompt), time.monotonic(), wanted.slo)
        self._num_writing += 1
        self._idle.clear()
        try:
            yield text
        except Exception as error:
            text.failed(error.code if isinstance(error, ServiceError) else "internal")
            raise
        finally:
            text.left()
            self._num_writing -= 1
            if not self._num_writing:
                self._idle.set()

    async def drain(self, timeout_s: float) -> bool:
        """Admits no more texts and waits for the others, queued ones included. Returns whether all were finished.

        After timeout_s the rest is closed at both nodes, and its users get Draining.
        """
        self.draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
            return True
        except TimeoutError:
            what = f"this draft node is shutting down, and the text was not finished within {timeout_s:g} s"
            await self._daemon.end_generations(Fail("draining", what))
            return False

    # -- tokens ----------------------------------------------------------------------------------------------------

    async def encode(self, text: str, user: str) -> tuple[int, ...]:
        """Token ids of a prompt; PromptError when it has none, Busy when too much of this user's waits."""
        return await self._encoder.prompt(text, user)

    async def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], user: str, inputs: Inputs = NOTHING
    ) -> tuple[int, ...]:
        """Token ids of a conversation, by the chat template; PromptError where there is none, or it refuses; Busy."""
        return await self._encoder.chat(messages, user, inputs)

    async def encode_answer(self, prompt: tuple[int, ...], text: str, user: str) -> tuple[int, ...]:
        """Token ids of an answer to this conversation, as the model would begin it; Busy."""
        blank = " " if leaves_blank(self._vocabulary.tokenizer, prompt, chat=True) else ""
        return await self._encoder.part(blank + text, user)

    async def decode(self, token_ids: Sequence[int], user: str) -> str:
        """Text of token ids, without special tokens; Busy when too much of this user's waits."""
        return await self._encoder.decode(token_ids, user)

    async def check_form(self, constraint: Constraint, user: str) -> None:
        """ConstraintError, with the reason, for one that cannot be served; Busy when too much of this user's waits."""
        await self._forms.check(constraint, user)

    def close(self) -> None:
        """Ends the threads for tokens and forms. Call it when no text is written any more."""
        self._encoder.close()
        self._forms.close()
