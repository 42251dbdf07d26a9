"""Inputs of a session (`Request`, `Proposed`), the actions that it and the core return, and its counts. Plain data.

A session's actions concern its user, the draft model or the line. `DraftCore` names the user (`Tell`) and adds actions
that concern the connection. Whoever drives the core carries out every action that an event returned, in order.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TypeAlias, get_args

from msgspec import Struct

from draft_node.core.directory import Address
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_DRAFT, Drafter, DraftSource, FinishReason, Otherwise, Verification
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import (
    Constraint,
    LogitRules,
    OpenSession,
    Sampling,
    Slo,
    TokenLogprobs,
    UpMessage,
    Verdict,
)


class Request(Struct, frozen=True):
    """A user's request: prompt ids and how to go on from them."""

    session_id: bytes
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    verification: Verification = "match"
    max_draft: int = MAX_DRAFT
    num_logprobs: int | None = None  # alternatives told of each position; None: no logprobs at all
    num_prompt_logprobs: int | None = None  # likewise of each token of the prompt but the first
    min_tokens: int = 0  # none of stop_ids is drawn before so many
    target: str | None = None  # fingerprint of the target that stop_ids and sampling are for; None: for any
    user: str = ""  # whose text it is, and whose history may draft for it; empty where nobody is told apart
    drafter: Drafter = "auto"  # what may draft for it
    slo: Objectives | None = None  # what it is to keep
    otherwise: Otherwise = "best_effort"  # what becomes of it where that cannot be promised
    asked_at: float = 0.0  # when its user asked for it
    logit_rules: LogitRules | None = None
    constraint: Constraint | None = None  # that its output keeps
    prediction: tuple[int, ...] = ()  # what its user expects it to be
    priority: int = 0  # among its user's texts that wait for a place; lower goes first
    cache_salt: bytes = b""  # texts of one salt may share what was read of them; empty: with none but itself

    def open(
        self,
        epoch: int,
        committed: tuple[int, ...],
        now: float,
        *,
        first_at: float | None = None,
        num_hops: int = 0,
        num_prompt_logprobs: int | None = None,
    ) -> OpenSession:
        """The message that opens the session with what is committed so far.

        first_at: when its user had the first token. num_hops: redirects since its last token. num_prompt_logprobs:
        None where they have come already.
        """
        return OpenSession(
            session_id=self.session_id,
            epoch=epoch,
            prompt=self.prompt,
            committed=committed,
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            stop_ids=self.stop_ids,
            verification=self.verification,
            max_draft=self.max_draft if self.drafter != "none" else 0,
            slo=self._slo(now, first_at),
            constraint=self.constraint,
            num_logprobs=self.num_logprobs,
            min_tokens=self.min_tokens,
            drafter=self.drafter,
            otherwise=self.otherwise,
            hops=num_hops,
            logit_rules=self.logit_rules,
            cache_salt=self.cache_salt,
            num_prompt_logprobs=num_prompt_logprobs,
        )

    def _slo(self, now: float, first_at: float | None) -> Slo | None:
        if self.slo is None:
            return None
        return Slo(self.slo, max(0.0, now - self.asked_at), None if first_at is None else now - first_at)

    def banned_at(self, position: int) -> tuple[int, ...]:
        """Tokens that may not be drawn at this position of the text."""
        return self.stop_ids if position < len(self.prompt) + self.min_tokens else ()


class Send(Struct, frozen=True):
    """A message for a verify node, on one of the links."""

    message: UpMessage
    link: int = 0


class Propose(Struct, frozen=True):
    """Have the draft model propose up to `length` tokens after `tokens`; 0 only brings its cache up to date.

    With `local` nobody verifies it: what is drawn is the text. The last `num_unverified` of `tokens` are drafted
    themselves. Under the match rule the proposal ends where the probability that all of it is accepted falls below
    `least_probability`.
    """

    request: Request
    epoch: int
    round: int
    tokens: tuple[int, ...]
    length: int
    local: bool = False
    least_probability: float = 0.0
    num_unverified: int = 0
    wants_alternatives: bool = False  # those of `Proposed`, for the verify node


class Proposed(Struct, frozen=True):
    """The answer to a Propose; no tokens when the draft model could not."""

    session_id: bytes
    epoch: int
    round: int
    tokens: tuple[int, ...]
    proposal: bytes | None = None
    probabilities: tuple[float, ...] | None = None  # match: of each token to be accepted after those before it
    alternatives: tuple[int | None, ...] = ()
    """For each token what the model would have drafted without it; None where that is hardly worth verifying."""


class Deliver(Struct, frozen=True):
    """Tokens for the user, in order, each exactly once; with the target's logprobs where they are wanted.

    They are verified, but for `local` ones: those the draft model wrote alone, from another distribution.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of tokens, or none
    accepted: tuple[bool, ...] = ()  # which of tokens are accepted drafts; empty: none of them
    local: bool = False
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None  # once, with the first tokens or the end, if wanted


class Finish(Struct, frozen=True):
    """The generation is complete."""

    reason: FinishReason


class Fail(Struct, frozen=True):
    """The generation cannot go on; the user is told why."""

    code: str
    what: str


@dataclass(slots=True)
class Statistics:
    """Counts of one session, as its verdicts reported them, and of what was written without any."""

    num_rounds: int = 0
    num_drafts: int = 0  # verified, with at least one token
    num_drafted: int = 0
    num_accepted: int = 0
    num_tokens: int = 0
    num_refusals: int = 0
    num_resends: int = 0
    num_local: int = 0  # of num_tokens, those that the draft model wrote alone
    num_cached: int = 0  # tokens of the prompt that the verify node had in memory when it first read it
    drafted: Counter[DraftSource] = field(default_factory=Counter)  # num_drafted by what drafted them
    accepted: Counter[DraftSource] = field(default_factory=Counter)  # num_accepted likewise
    drafts: Counter[tuple[int, int]] = field(default_factory=Counter)  # num_drafts by (tokens verified, accepted)

    def count(self, verdict: Verdict, num_new: int) -> None:
        """A verdict was applied, and so many of its tokens were new."""
        if self.num_rounds == 0:
            self.num_cached = verdict.num_cached
        self.num_rounds += 1
        self.num_tokens += num_new
        self.num_drafts += verdict.num_verified > 0
        self.num_drafted += verdict.num_verified
        self.num_accepted += verdict.num_accepted
        if verdict.num_verified:
            self.drafts[verdict.num_verified, verdict.num_accepted] += 1
        if verdict.source is not None:
            self.drafted[verdict.source] += verdict.num_verified
            self.accepted[verdict.source] += verdict.num_accepted

    @property
    def acceptance_rate(self) -> float:
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    def by_name(self) -> dict[str, object]:
        """All counts by name, for JSON. `dataclasses.asdict` would count a Counter's items instead of copying them."""
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "drafts"}
        return numbers | {"drafted": by_source(self.drafted), "accepted": by_source(self.accepted)}


def by_source(tokens: Counter[DraftSource]) -> dict[DraftSource, int]:
    """Tokens by what drafted them, those that drafted none included."""
    return {source: tokens[source] for source in get_args(DraftSource)}


Action: TypeAlias = Send | Propose | Deliver | Finish | Fail


class Tell(Struct, frozen=True):
    """Hand this to the user of the session; after a Finish or a Fail there is nothing more for them."""

    session_id: bytes
    item: Deliver | Finish | Fail


class Connect(Struct, frozen=True):
    """Make a link to another verify node; what is sent on it from now on goes there."""

    link: int
    address: Address


class Disconnect(Struct, frozen=True):
    """Give up a link, after what was sent on it."""

    link: int


class Reconnect(Struct, frozen=True):
    """Drop the connection of a link with everything queued on it, and make another."""

    link: int = 0


class Connected(Struct, frozen=True):
    """The verify node answered the Hello: its limits hold from now on."""

    welcome: Welcome
    was_local: bool  # the draft model has written alone until now
    link: int = 0


class Away(Struct, frozen=True):
    """No verify node is in reach; texts wait for one."""


class WriteLocally(Struct, frozen=True):
    """The draft model writes alone from now on, since the verify node has been away for too long."""


class EndTexts(Struct, frozen=True):
    """The verify node has been away for too long, so the texts that wait for it end."""

    num_texts: int


class GiveUp(Struct, frozen=True):
    """The verify node has been away for too long, so this node stops."""


NodeAction: TypeAlias = (
    Send | Propose | Tell | Connect | Disconnect | Reconnect | Connected | Away | WriteLocally | EndTexts | GiveUp
)
