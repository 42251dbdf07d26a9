"""Holds what is drafted beyond a session's text, what may be, and whether rounds wait for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from goodspeed.drafting.sources import is_awaited
from goodspeed.wire.messages import Draft
from verify_node.clients.calibration import ClaimedOf, Floats, TextBias
from verify_node.clients.client import ANSWER_TOKENS, Client
from verify_node.session.draft_timer import DraftTimer
from verify_node.session.draft_tokens import DraftTokens

LATE_TIMES, LEAST_LATE_S, MOST_LATE_S = 8.0, 3.0, 10.0
"""A draft is late after LATE_TIMES times its usual time, within two bounds: at least LEAST_LATE_S, so that a lost
message can be repeated, and at most MOST_LATE_S, the longest time that a draft may delay rounds."""


@dataclass(slots=True, eq=False)
class DraftState:
    """The drafts of one session. All of them continue its current text."""

    client: Client
    newest: DraftTokens | None = None  # the rest of its draft node's newest draft
    own: DraftTokens | None = None  # what the verify node's draft model drafted
    forced: tuple[int, ...] = ()  # what its constraint forces next
    may_draft: int = 0  # tokens beyond the text that may be drafted, as sent to its draft node
    zero_since: int | None = None  # verify round since which it may draft nothing
    is_needed: bool = False  # the newest verdict left nothing of the newest draft
    waits: bool = False  # rounds leave the session out until its draft is complete, or late
    late_at: float = 0.0  # time from which its draft is no longer waited for
    biases: dict[ClaimedOf, TextBias] = field(default_factory=dict)  # of the session's text
    timer: DraftTimer = field(init=False)

    def __post_init__(self) -> None:
        self.timer = DraftTimer(self.client)

    @property
    def is_awaited(self) -> bool:
        """True if rounds wait for the draft, and it is not complete yet."""
        return self.waits and (self.newest is None or not self.newest.complete)

    def take(self, draft: Draft, text: Sequence[int], now: float, most: int) -> None:
        """Takes an arriving draft; a draft for more of the text replaces one for less. most: see `DraftTokens.read`."""
        if self.newest is not None and self.newest.outdates(draft):
            return
        is_new, drafted = draft.base_len == len(text), DraftTokens.read(draft, text, most)
        if drafted is not None and drafted.tokens:
            self.client.note_draft(draft.source, drafted.depth)
        if is_new and draft.tokens:
            is_whole = draft.proposal is not None  # under the ratio rule
            if is_awaited(draft.source) or (is_whole and not self.client.has_model):
                self.timer.answered(now, len(draft.tokens) + 1 if is_whole else ANSWER_TOKENS)
            else:
                self.timer.answered_by_index(now, only=is_whole)
        self.newest = drafted
        if is_new and draft.complete:
            self.client.complete_draft()

    def calibrated(self, source: ClaimedOf, codes: bytes) -> list[float]:
        """Returns the probabilities that tokens of this source are accepted, from the claimed codes."""
        return self.corrected(source, self.client.calibration(source).probabilities(codes))

    def corrected(self, source: ClaimedOf, calibrated: Floats) -> Floats:
        """Returns the client's calibrated probabilities, corrected for the text."""
        return self.biases[source].corrected(calibrated) if source in self.biases else calibrated

    def observe_claims(self, source: ClaimedOf, codes: bytes, num_accepted: int) -> None:
        """Counts a verified draft, as `Calibration.observe` does, for the client and for the text."""
        known = self.client.calibration(source)
        self.biases.setdefault(source, TextBias()).observe(known.latest(codes), num_accepted)
        known.observe(codes, num_accepted)

    def follow(self, taken: Sequence[int], *, finished: bool) -> None:
        """Cuts the drafts after the text grew by these tokens; a finished text has none."""
        self.newest = None if finished or self.newest is None else self.newest.after(taken)
        self.own = None if finished or self.own is None else self.own.after(taken)

    def take_own(self, drafted: DraftTokens) -> None:
        self.own = drafted

    def must_follow(self, tokens: tuple[int, ...]) -> None:
        """Records the tokens that the session's constraint forces after its current text."""
        self.forced = tokens

    def go_without(self, number: int) -> None:
        """Marks the draft late in round `number`: rounds proceed without it, and no longer wait for its client's."""
        self.waits = False
        self.client.miss_draft(number)

    def permit(self, may_draft: int, number: int) -> None:
        """Sets the number of tokens that may be drafted, by verify round `number`."""
        self.may_draft = may_draft
        if may_draft:
            self.zero_since = None
        elif self.zero_since is None:
            self.zero_since = number

    def end_round(self, num_accepted: int, drafted: bool | None) -> None:
        """Updates the gain of model drafts, as `DraftTimer.end_round` does."""
        self.timer.end_round(num_accepted, drafted)

    def call(self, may_draft: int, now: float, *, waits: bool) -> None:
        """Starts the wait for an answer to a verdict. waits: rounds wait until the draft is complete, if permitted."""
        self.is_needed = self.newest is None
        if not may_draft:
            self.timer.pause()
        self.timer.verdict_goes_out(now, calls=may_draft > 0 and self.is_needed)
        self.waits = waits and may_draft > 0
        if self.waits:
            usual_s = self.client.answer_s or MOST_LATE_S
            self.late_at = now + min(MOST_LATE_S, max(LEAST_LATE_S, LATE_TIMES * usual_s))
