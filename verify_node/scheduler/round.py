"""A round as input of the target, and the target's decisions: plain data that could be sent to other processes.

It contains the tokens to feed, draw and verify, and the limits of a round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from msgspec import Struct

from goodspeed.drafting.sources import Source
from goodspeed.exact import trees
from goodspeed.fair.estimators import ROUNDING
from goodspeed.wire.fields import Verification
from goodspeed.wire.messages import OpenSession, TokenLogprobs
from verify_node.session.draft_tokens import NOTHING, DraftTokens
from verify_node.session.session import Session


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Limits of every round."""

    budget: int  # drafted tokens
    max_round_tokens: int  # all tokens fed

    @property
    def most_prefill(self) -> int:
        """Most prefill tokens of sessions without a promise; the rest is for sessions in decode."""
        return self.max_round_tokens // 2


class PromptRows(Struct, frozen=True):
    """Rows of logits after tokens of a prompt, for prompt logprobs."""

    first: int  # position of the token that the first row follows
    tokens: tuple[int, ...]  # the prompt's next token after each row's
    num_top: int  # alternatives to report for each


class Entry(Struct, frozen=True):
    """One session's part of a round.

    `tokens` are fed at position `start`; the last of them are `drafted`. With `samples` the target draws at the last
    num_drafted + 1 positions; without, this is a chunk of a prompt that goes on in a later round.
    """

    opened: OpenSession
    start: int
    tokens: tuple[int, ...]
    drafted: DraftTokens = NOTHING
    samples: bool = True
    verification: Verification = "match"  # as of now: see `Session.verification`
    text: Sequence[int] = ()  # prompt and committed tokens; not a copy: a round in flight commits none
    answered: bool | None = None  # whether its draft node has answered the newest verdict; None: no draft was needed
    model_drafted: bool | None = None  # whether its draft model has drafted anew; None: no new draft was needed
    prompt_rows: PromptRows | None = None  # of the fed prompt tokens, if their logprobs are requested

    @property
    def session_id(self) -> bytes:
        return self.opened.session_id

    @property
    def num_drafted(self) -> int:
        return len(self.drafted.tokens)

    @property
    def source(self) -> Source | None:
        """Source of the drafted tokens; None if there are none."""
        return self.drafted.source if self.drafted.tokens else None

    @property
    def parents(self) -> tuple[int, ...] | None:
        """Index of each drafted token's predecessor, or -1; None: a chain."""
        return self.drafted.parents

    @property
    def num_drawn(self) -> int:
        return self.num_drafted + 1 if self.samples else 0

    @property
    def num_rows(self) -> int:
        """Number of logit rows: prompt rows first, then the rows to sample from."""
        if self.prompt_rows is None:
            return self.num_drawn
        return self.start + len(self.tokens) - self.prompt_rows.first

    @property
    def base_len(self) -> int:
        """Position of the first token that this entry decides."""
        return self.start + len(self.tokens) - self.num_drafted

    @property
    def num_prefill(self) -> int:
        """Number of tokens before those that decide something."""
        return len(self.tokens) - self.num_drafted - self.samples

    @property
    def first_choices(self) -> Sequence[int]:
        """Indexes of the drafted tokens that are their drafter's likeliest continuation of those before them."""
        return range(self.num_drafted) if self.parents is None else trees.first_choices(self.parents)


def make_entry(session: Session, cached: int, drafted: DraftTokens) -> Entry:
    """Makes an entry of all tokens not yet fed, with the draft. cached: tokens already fed."""
    tokens = session.tokens
    return Entry(
        session.opened,
        cached,
        (*tokens[cached:], *drafted.tokens),
        drafted,
        verification=session.verification,
        text=tokens,
        answered=session.answered,
        model_drafted=session.model_drafted,
        prompt_rows=prompt_rows(session, cached, len(tokens) - cached),
    )


def make_chunk(session: Session, cached: int, num_tokens: int) -> Entry:
    """Makes an entry of the next tokens of a text that continues in a later round."""
    return Entry(
        session.opened,
        cached,
        tuple(session.tokens[cached : cached + num_tokens]),
        samples=False,
        verification=session.verification,
        prompt_rows=prompt_rows(session, cached, num_tokens),
    )


def prompt_rows(session: Session, start: int, num_tokens: int) -> PromptRows | None:
    """Returns the new rows when num_tokens of its text are fed from position `start` on; None if there are none."""
    num_top, known = session.opened.num_prompt_logprobs, session.prompt_logprobs
    if num_top is None or known is None:
        return None
    prompt = session.opened.prompt
    first, end = len(known), min(start + num_tokens, len(prompt) - 1)
    return PromptRows(first, prompt[first + 1 : end + 1], num_top) if first < end else None


class DraftRequest(Struct, frozen=True):
    """A session of a round for which the verify node's own draft model may draft once the round is decided."""

    opened: OpenSession
    text: Sequence[int]  # prompt and committed tokens before the round; not a copy: a round in flight commits none
    most: int  # tokens of the round and the draft together
    worth: float  # of one token
    calibrated: tuple[float, ...]  # probability of acceptance of a token, by the code of its claimed probability
    least_probability: float  # path probability below which a token is not worth verifying
    prefix_scope: bytes = b""  # group of sessions that share pages; empty: none

    @property
    def session_id(self) -> bytes:
        return self.opened.session_id


class Drafting(Struct, frozen=True):
    """Report of the verify node's own draft model about a round."""

    seconds: float = 0.0
    num_passes: int = 0
    rests: bool = False  # after a failure


NO_DRAFTING = Drafting()


class Round(Struct, frozen=True):
    """One forward pass: the entries of sessions, and the sessions that were left out."""

    number: int
    entries: tuple[Entry, ...]
    admitted: tuple[bytes, ...] = ()  # sessions that had no pages before
    deferred: tuple[bytes, ...] = ()  # ready sessions that wait for the next round
    crowded_out: tuple[bytes, ...] = ()  # of these, sessions that lack pages
    preempted: tuple[bytes, ...] = ()  # sessions that lost their pages; recomputed later
    draft_requests: tuple[DraftRequest, ...] = ()  # for the verify node's draft model, after the decisions
    room_left: float = inf  # for prefill, as in `prefill.Room`; the verify node's draft model may use it
    worth_per_s: float = 0.0  # expected worth of the tokens of a second of rounds; 0: unknown

    @property
    def prefilled(self) -> tuple[bytes, ...]:
        """Sessions that prefill part of their prompt, or of their text after a preemption."""
        return tuple(entry.session_id for entry in self.entries if entry.num_prefill)

    @property
    def num_tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.entries)

    @property
    def context_tokens(self) -> int:
        """Tokens cached before this round, over all its sessions."""
        return sum(entry.start for entry in self.entries)

    @property
    def num_drafted(self) -> int:
        return sum(entry.num_drafted for entry in self.entries)


def context_read(entries: Iterable[Entry], *, per_row: bool, drafted: bool = True) -> int:
    """Returns the cached tokens that a round reads. per_row: `Engine.reads_per_row`. drafted: with drafted tokens."""
    if not per_row:
        return sum(entry.start for entry in entries)
    return sum(entry.start * (len(entry.tokens) - (0 if drafted else entry.num_drafted)) for entry in entries)


class Decisions(Struct, frozen=True):
    """The target's decision at each drafted position, also after the first rejection; in a tree at first choices."""

    agreed: tuple[bool, ...]
    ratios: tuple[float, ...] = ()  # min(1, p/q), under the ratio rule


class Outcome(Struct, frozen=True):
    """The result of one entry: if it samples, the accepted tokens and one more; prompt logprobs, if requested."""

    session_id: bytes
    tokens: tuple[int, ...]
    num_accepted: int
    agreement: float  # sum over the drafted positions of Eq. (3)'s indicator, or under the ratio rule of its mean
    invalid: str = ""  # why the proposal was not used
    failed: str = ""  # why nothing could be decided; the session cannot continue
    decisions: Decisions | None = None  # only for a recording
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of `tokens`, if the entry requests them
    evidence: tuple[float, ...] = ()  # against the drafted tokens being drawn as claimed, under the ratio rule
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the entry's `prompt_rows`
    forced: tuple[int, ...] = ()  # tokens that the output's constraint forces next
    path: tuple[int, ...] | None = None  # indexes of the accepted tokens in a tree; None: the first of a chain
    breaks_constraint: bool = False  # whether it failed because of the output's constraint
    own: DraftTokens | None = None  # drafted after `tokens` by the verify node's draft model, for the next round

    def is_possible(self, num_drafted: int) -> bool:
        """True if estimates can learn from it. num_drafted: number of positions that `agreement` sums over."""
        most = num_drafted * (1.0 + ROUNDING)
        return 0.0 <= self.agreement <= most and all(map(isfinite, self.evidence))

    @property
    def offsets(self) -> Sequence[int]:
        """Row of logits that each token was drawn from, counted from the first row of its entry."""
        return range(len(self.tokens)) if self.path is None else [0, *(node + 1 for node in self.path)]
