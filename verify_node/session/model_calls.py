"""When a session's draft model has to offer anew, how long it takes for that, and what an offer in time brings.

A verdict that permits offers, and leaves nothing of the last one, calls the draft model. Knows nothing about a
session's phase, or about what is offered.
"""

from dataclasses import dataclass

from verify_node.session.client import Client

LATER = 1.1
"""How much later than on average an offer of a draft model may be that is waited for."""


@dataclass(slots=True)
class ModelCalls:
    """The calls of one session; what they teach is its client's."""

    client: Client
    _called_at: float | None = None  # the verdict since which its draft model has to offer anew
    _has_offered: bool = False  # since then
    _last: tuple[bool, int] | None = None  # of the last round: whether it was in time, and the tokens accepted

    @property
    def is_called(self) -> bool:
        """Whether the draft model had to offer anew after the newest verdict."""
        return self._called_at is not None

    @property
    def due_at(self) -> float:
        """When it should have offered anew, also if it is a little later than usual."""
        return (self._called_at or 0.0) + LATER * self.client.offer_s

    def answered(self, now: float) -> None:
        """It offered something after the text as it is now."""
        if self._called_at is None:
            return
        if not self._has_offered:
            self.client.observe_offer_time(now - self._called_at)
        self._has_offered = True

    def verdict_goes_out(self, now: float, *, calls: bool) -> None:
        """calls: a draft model that may offer has to do so anew, since nothing is left of its last offer.

        One that is silent has been called since its last offer ended, however many verdicts ago.
        """
        is_silent = self._called_at is not None and not self._has_offered
        if is_silent:
            self.client.miss_offer(now - (self._called_at or 0.0))
        if not calls:
            self._called_at = None
        elif not is_silent:
            self._called_at = now
        self._has_offered = False

    def observe(self, num_accepted: int, offered: bool | None) -> None:
        """A round is done. offered: whether it was in time for that; None: it did not have to offer.

        What an offer in time brings shows in that round and in the next: one that comes too late for the first is there
        for the second, and reaches farther.
        """
        if self._last is not None:
            before, num_before = self._last
            self.client.model_gain.observe(num_before + num_accepted, in_time=before)
        self._last = None if offered is None else (offered, num_accepted)
