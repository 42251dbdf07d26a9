"""A round as the target is given it, and what the target decides: plain data that could be sent to other processes.

It says what is fed, drawn and drafted, and what no round may exceed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from msgspec import Struct

from goodspeed.exact import trees
from goodspeed.fair.estimators import ROUNDING
from goodspeed.wire.fields import DraftSource, Verification
from goodspeed.wire.messages import Constraint, LogitRules, Sampling, TokenLogprobs


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Limits of every round."""

    budget: int  # drafted tokens
    max_round_tokens: int  # everything fed


class PromptRows(Struct, frozen=True):
    """Rows of logits after tokens of a prompt, and what they are read for."""

    first: int  # position of the token that the first row follows
    tokens: tuple[int, ...]  # the prompt's next token after each row's
    num_top: int  # alternatives to be told of each


class Entry(Struct, frozen=True):
    """One session's part of a round.

    `tokens` are fed at position `start`; the last `num_drafted` of them are the draft. With `samples` the target
    draws at the last num_drafted + 1 positions; without, this is a chunk of a prompt that goes on in a later round.
    """

    session_id: bytes
    start: int
    tokens: tuple[int, ...]
    num_drafted: int
    samples: bool
    sampling: Sampling
    verification: Verification = "match"
    epoch: int = 0
    proposal: bytes | None = None
    num_logprobs: int | None = None  # alternatives to be told of each token that comes of it; None: no logprobs
    stop_ids: tuple[int, ...] = ()  # not drawn at positions below `may_stop_at`; there if that, or a form, needs them
    may_stop_at: int = 0
    probabilities: bytes = b""  # codes of the drafted tokens' claimed probabilities, or none
    source: DraftSource | None = None  # of the drafted tokens
    parents: tuple[int, ...] | None = None  # of each drafted token the one that it follows, or -1; None: a chain
    answered: bool | None = None  # whether its draft node had answered its newest verdict; None: it may not draft
    model_drafted: bool | None = None  # whether its draft model had drafted anew; None: it did not have to
    is_forced: bool = False  # what is drafted is certain, by the form of the output
    rules: LogitRules | None = None  # for its logits
    constraint: Constraint | None = None  # that its output keeps
    prompt_len: int = 0  # of its text, which is there only where rules or a constraint read it
    text: tuple[int, ...] = ()  # the prompt and all that is committed
    prompt_rows: PromptRows | None = None  # of the prompt's tokens among those fed, where their logprobs are wanted

    @property
    def num_drawn(self) -> int:
        """Positions that the target draws at."""
        return self.num_drafted + 1 if self.samples else 0

    @property
    def num_rows(self) -> int:
        """Rows of logits, after the last tokens: those drawn from come last, those of a prompt first."""
        if self.prompt_rows is None:
            return self.num_drawn
        return self.start + len(self.tokens) - self.prompt_rows.first

    @property
    def base_len(self) -> int:
        """Position of the first token that this entry decides."""
        return self.start + len(self.tokens) - self.num_drafted

    @property
    def first_choices(self) -> Sequence[int]:
        """The places among the drafted tokens of those that their drafter finds likeliest after those before them."""
        return range(self.num_drafted) if self.parents is None else trees.first_choices(self.parents)

    def banned_at(self, position: int) -> tuple[int, ...]:
        """Tokens that may not be drawn at this position of the text."""
        return self.stop_ids if position < self.may_stop_at else ()


class Round(Struct, frozen=True):
    """One forward pass: who takes part with what, and who could not."""

    number: int
    entries: tuple[Entry, ...]
    prefilled: tuple[bytes, ...] = ()  # sessions fed a part of their prompt, or of their text after a preemption
    verified: tuple[bytes, ...] = ()  # sessions for which the target draws
    admitted: tuple[bytes, ...] = ()  # sessions that had no memory before
    deferred: tuple[bytes, ...] = ()  # ready, and left for the next round
    crowded_out: tuple[bytes, ...] = ()  # of these, for want of memory
    preempted: tuple[bytes, ...] = ()  # lost their memory; recomputed later

    @property
    def num_tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.entries)

    @property
    def context_tokens(self) -> int:
        """Cached before this round, over all its sessions."""
        return sum(entry.start for entry in self.entries)

    @property
    def num_drafted(self) -> int:
        return sum(entry.num_drafted for entry in self.entries)


class Decisions(Struct, frozen=True):
    """The target's decision at each drafted position, also after the first rejection; in a tree by first choices."""

    agreed: tuple[bool, ...]
    ratios: tuple[float, ...] = ()  # min(1, p/q), under the ratio rule


class Outcome(Struct, frozen=True):
    """The result of one entry: if it samples, the accepted tokens and one more; logprobs of its prompt, if wanted."""

    session_id: bytes
    tokens: tuple[int, ...]
    num_accepted: int
    agreement: float  # sum over the drafted positions of Eq. (3)'s indicator, or under the ratio rule of its mean
    invalid: str = ""  # why the proposal was not used
    failed: str = ""  # why nothing could be decided: the session cannot go on
    decisions: Decisions | None = None  # only for a recording
    logprobs: tuple[TokenLogprobs, ...] = ()  # one for each of tokens, where the entry wants them
    evidence: tuple[float, ...] = ()  # of the drafted tokens against what was sent with them, under the ratio rule
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # of the entry's `prompt_rows`
    forced: tuple[int, ...] = ()  # what must follow the tokens, by the form that the output is to keep
    path: tuple[int, ...] | None = None  # places of the accepted tokens in a tree; None: the first of a chain
    breaks_constraint: bool = False  # whether it failed because of the form that the output is to keep

    def is_possible(self, num_drafted: int) -> bool:
        """Returns whether estimates can learn from it; num_drafted: positions that `agreement` is summed over."""
        most = num_drafted * (1.0 + ROUNDING)
        return 0.0 <= self.agreement <= most and all(map(isfinite, self.evidence))

    @property
    def offsets(self) -> Sequence[int]:
        """The row of logits that each token was drawn from, counted from the first row of its entry."""
        return range(len(self.tokens)) if self.path is None else [0, *(node + 1 for node in self.path)]
