"""Writes texts for users: admits or refuses them, begins them anew, counts them and drains.

    service = Service(daemon, vocabulary, max_waiting=64)
    async with aclosing(service.write(Wanted(prompt=..., sampling=..., max_tokens=100))) as pieces:
        async for piece in pieces: ...

`service.texts` (`counts.py`) counts the outcome of every text for `/metrics`.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from draft_node.core.actions import Fail, Request
from draft_node.core.counts import Text, Texts
from draft_node.daemon import DraftDaemon
from draft_node.service.answer import Answer, Piece
from draft_node.service.chat_forms import ChatForms, opened
from draft_node.service.queues import Encoder, Forms
from draft_node.service.request import Begun, Ended, Wanted
from draft_node.service.state import NodeState
from draft_node.service.tokens import TokenTexts
from draft_node.service.writing import Salts, Writing, begins_anew
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.text import NOTHING, Inputs, leaves_blank
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import Busy, Draining, RequestRefused, ServiceError, VerifyAway
from goodspeed.wire.generation import Constraint

logger = logging.getLogger("goodspeed.draft")


class Service(NodeState):
    """Writes texts through a draft daemon that somebody else runs (`daemon.serve`)."""

    def __init__(
        self, daemon: DraftDaemon, vocabulary: Vocabulary, *, max_waiting: int, chats: ChatForms | None = None
    ) -> None:
        """max_waiting: texts that wait to be admitted by the daemon; one more is refused.

        chats: the forms of its chats; None: those that the tokenizer's template tells.
        """
        super().__init__(daemon, vocabulary)
        self.max_waiting = max_waiting
        self.texts = Texts()
        self.chats = chats or ChatForms.of(vocabulary.tokenizer)
        self._num_writing = 0
        self._idle = asyncio.Event()  # nothing is being written
        self._idle.set()
        self._token_texts = TokenTexts(vocabulary.tokenizer)
        self._salts = Salts()
        self._encoder = Encoder(vocabulary.tokenizer)
        drafting = daemon.drafting
        shared = drafting.drafter.constraints if drafting is not None else None
        self._forms = Forms(shared or Constraints(vocabulary, Trial(vocabulary)))

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
                    wanted = self._renewed(wanted)

    async def _attempt(self, wanted: Wanted, text: Text) -> AsyncGenerator[Begun | Piece | Ended, None]:
        """Writes the text with one target, in one session."""
        writing = self.begin(wanted, text.times.asked_at)
        answer, is_begun, kept = writing.answer, False, None
        async with self._forms.held(writing.request), aclosing(writing.pieces()) as pieces:
            async for piece in pieces:
                if not is_begun:
                    is_begun = True
                    yield Begun(writing.target, writing.request.session_id, writing.statistics)
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

    def begin(self, wanted: Wanted, asked_at: float) -> Writing:
        """Returns a session for the text, asked for at that time; it begins when its pieces are asked for."""
        tokenizer = self._vocabulary.tokenizer
        answer = Answer(
            tokenizer,
            self._token_texts,
            wanted.stop,
            wanted.min_tokens,
            is_trimmed=leaves_blank(tokenizer, wanted.prompt, chat=wanted.is_chat),
            prompt=wanted.prompt,
            speech=wanted.speech,
            is_thinking=opened(tokenizer, wanted.prompt, wanted.speech) == "open",
        )
        return Writing(self._daemon, self._request(wanted, asked_at), answer)

    def _request(self, wanted: Wanted, asked_at: float) -> Request:
        target = wanted.target if wanted.target is not None else self.target_fingerprint
        return Request(
            session_id=secrets.token_bytes(16),
            prompt=wanted.prompt,
            sampling=wanted.sampling,
            max_tokens=wanted.max_tokens,
            stop_ids=self.stop_ids(wanted.stop_token_ids, ignore_eos=wanted.ignore_eos),
            verification=wanted.verification,
            max_draft=wanted.max_draft,
            num_logprobs=wanted.num_logprobs,
            num_prompt_logprobs=wanted.num_prompt_logprobs,
            min_tokens=wanted.min_tokens,
            user=wanted.user,
            drafter=wanted.drafter,
            target=target,
            slo=wanted.slo,
            otherwise=wanted.otherwise,
            asked_at=asked_at,
            prediction=wanted.prediction,
            priority=wanted.priority,
            logit_rules=wanted.logit_rules,
            constraint=wanted.constraint,
            cache_salt=self._salts.of(wanted.user) if wanted.prefix_cache else b"",
        )

    def _renewed(self, wanted: Wanted) -> Wanted:
        """Returns the same text with the defaults of the target that is there now."""
        sampling, stop, rules = wanted.sampling, wanted.stop, wanted.logit_rules
        if wanted.resolve is not None:
            sampling, stop, rules = wanted.resolve(self.defaults(chat=wanted.is_chat))
        return replace(wanted, sampling=sampling, stop=stop, logit_rules=rules, target=self.target_fingerprint)

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
