"""Turns a text that is wanted into a session of the draft daemon, for HTTP and for the console alike."""

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import blake2b

from draft_node.core.actions import Fail, Request, Statistics
from draft_node.core.link import VerifyLink
from draft_node.core.session import Session
from draft_node.daemon import DraftDaemon
from draft_node.service.answer import Answer, Piece
from draft_node.service.chat_forms import opened
from draft_node.service.request import Wanted
from draft_node.service.tokens import TokenTexts
from goodspeed.engine.tokenizing.text import leaves_blank
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import Busy, Draining, RequestRefused, ServiceError, VerifyAway
from goodspeed.serving import defaults
from goodspeed.slo.objectives import DEFAULT_TIER, LONGEST_S, Objectives
from goodspeed.wire.fields import MAX_STOP_IDS
from goodspeed.wire.handshake import Defaults


class Writer:
    """Begins texts under what the target says: its defaults, its ends of a sequence, its fingerprint."""

    def __init__(self, daemon: DraftDaemon, vocabulary: Vocabulary) -> None:
        self.levels = Levels(daemon.link)
        self._daemon = daemon
        self._vocabulary = vocabulary
        self._token_texts = TokenTexts(vocabulary.tokenizer)
        self._salts = Salts()

    def defaults(self, *, chat: bool) -> Defaults:
        """Sampling defaults and stop strings for requests that leave them out."""
        return defaults.known(self._daemon.link.welcome, self._vocabulary.settings, chat=chat)

    @property
    def target_fingerprint(self) -> str | None:
        """The fingerprint of the target that was seen last; None before there was one."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target_fingerprint

    def begin(self, wanted: Wanted, asked_at: float) -> "Writing":
        """A new session for the text, asked for at that time; nothing happens before its pieces are asked for."""
        tokenizer = self._vocabulary.tokenizer
        is_trimmed = leaves_blank(tokenizer, wanted.prompt, chat=wanted.is_chat)
        answer = Answer(
            tokenizer,
            self._token_texts,
            wanted.stop,
            wanted.min_tokens,
            is_trimmed=is_trimmed,
            prompt=wanted.prompt,
            speech=wanted.speech,
            is_thinking=opened(tokenizer, wanted.prompt, wanted.speech) == "open",
        )
        return Writing(self._daemon, self._request(wanted, asked_at), answer)

    def renewed(self, wanted: Wanted) -> Wanted:
        """The same text with the defaults of the target that is there now."""
        sampling, stop, rules = wanted.sampling, wanted.stop, wanted.logit_rules
        if wanted.resolve is not None:
            sampling, stop, rules = wanted.resolve(self.defaults(chat=wanted.is_chat))
        return replace(wanted, sampling=sampling, stop=stop, logit_rules=rules, target=self.target_fingerprint)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end each text: the target says which; until it has been seen, the draft model has to."""
        welcome = self._daemon.link.welcome
        return tuple(welcome.eos_ids if welcome is not None else self._vocabulary.eos_ids)

    def stop_ids(self, stop_token_ids: Sequence[int], *, ignore_eos: bool) -> tuple[int, ...]:
        """All tokens that end a text: its own, and the target's unless it ignores these; RequestRefused if too many.

        So many are only where another target came while the text waited for its turn.
        """
        found = tuple(dict.fromkeys((*(() if ignore_eos else self.eos_ids), *stop_token_ids)))
        if len(found) > MAX_STOP_IDS:
            what = f"{len(found)} tokens would end the text, the target's own included; {MAX_STOP_IDS} are the most"
            raise RequestRefused("malformed", f"{what}: send fewer stop_token_ids")
        return found

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


class Writing:
    """One text by one target, in one session."""

    def __init__(self, daemon: DraftDaemon, request: Request, answer: Answer) -> None:
        self.request = request
        self.answer = answer
        self._daemon = daemon
        self._session: Session | None = None

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Pieces of text as they are certain, the last one when `answer.is_complete`. Waits for the session's turn.

        Raises a ServiceError where the session fails. Leaving the iteration early closes the session at both nodes.
        """
        async with aclosing(self._daemon.generate(self.request)) as items:
            async for item in items:
                self._session = self._daemon.session(self.request.session_id)
                if isinstance(item, Fail):
                    raise _error(item)
                yield self.answer.take(item)
                if self.answer.is_complete:
                    return

    @property
    def target(self) -> str | None:
        """Fingerprint of the target that writes the text; None while the draft model does so alone."""
        return self._begun.target

    @property
    def promised(self) -> bool | None:
        """Whether the verify node promised its service level; None where it said nothing of it."""
        return self._begun.promised

    @property
    def statistics(self) -> Statistics:
        return self._begun.statistics

    @property
    def _begun(self) -> Session:
        if self._session is None:
            raise RuntimeError("a text that has not begun has no target and no statistics")
        return self._session


def begins_anew(error: RequestRefused, num_tokens: int, *, restarts: bool = False) -> bool:
    """Whether a text is asked for again after this error: another target is there, and nothing was delivered yet.

    With `restarts` what was delivered is void.
    """
    return error.code == "target_changed" and (restarts or not num_tokens)


def _error(fail: Fail) -> ServiceError:
    """What a session's failure is for its user."""
    if fail.code == "verify_away":
        return VerifyAway(fail.code, fail.what)
    if fail.code in ("draining", "closed"):
        return Draining(fail.code, fail.what)
    if fail.code == "not_promised":
        return Busy(fail.code, fail.what)
    return RequestRefused(fail.code, fail.what)


CODE = "slo"
"""Code of the refusal of a level."""


class Levels:
    """What may be asked for now; nothing is known of it before the verify node has said Welcome."""

    def __init__(self, link: VerifyLink) -> None:
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        """The verify node's tiers by name."""
        welcome = self._link.welcome
        return {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}

    @property
    def default(self) -> Objectives | None:
        """What a text that asks for nothing gets: the tier called default, if there is one, as the key allows it."""
        tier = self.tiers.get(DEFAULT_TIER)
        return None if tier is None else tier.at_least(self._least_tpot_s or 0.0)

    def tier(self, name: str) -> Objectives:
        """The tier of that name; RequestRefused with those that there are, or VerifyAway if these are not known yet."""
        tiers = self.tiers
        if name not in tiers and self._link.welcome is None:
            what = "the verify node, which may have the tier, has not been reached yet; ask again later"
            raise VerifyAway("verify_away", what)
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """The same objectives; RequestRefused if this node's key may not ask for so short a TPOT."""
        least_s = self._least_tpot_s
        if least_s is not None and slo.tpot_s is not None and slo.tpot_s < least_s:
            what = f"a TPOT of {1000 * slo.tpot_s:g} ms is shorter than this draft node's key allows"
            instead = "leave it out" if least_s >= LONGEST_S else f"ask for at least {1000 * least_s:g} ms"
            raise RequestRefused(CODE, f"{what}; {instead}")
        return slo

    @property
    def _least_tpot_s(self) -> float | None:
        """What this node's key allows; None: anything."""
        welcome = self._link.welcome
        return welcome.slo.least_tpot_s if welcome is not None else None


SALT_BYTES = 16


class Salts:
    """Salts of this process, which it forgets with its end."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, user: str) -> bytes:
        """The salt of a user's texts; the empty name is that of whoever has this node to himself."""
        return blake2b(user.encode(), digest_size=SALT_BYTES, key=self._secret, person=b"cache salt").digest()
