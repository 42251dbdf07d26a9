"""A target model that fails: on a round as a whole, on one session of it, or on some sessions for ever."""

from random import Random

from msgspec.structs import replace

from experiments.simulation.settings import Faults
from verify_node.scheduler.round import Outcome, Round

WHY = "simulated"


class Failures:
    """Decides what fails, and keeps which sessions had it coming."""

    def __init__(self, faults: Faults, random: Random) -> None:
        self.num_faults = 0
        self.given_up: set[bytes] = set()  # sessions that the verify node may call failed
        self._faults = faults
        self._random = random

    def on(self, planned: Round, outcomes: list[Outcome]) -> list[Outcome] | None:
        """The outcomes, some of them failed; None when there are none, since the round is lost as a whole."""
        faults = self._faults
        if faults.abort or faults.bad:
            bad = any(self._is_bad(entry.session_id) for entry in planned.entries)
            if bad or self._random.random() < faults.abort:
                self.num_faults += 1
                if len(planned.entries) == 1:
                    self.given_up.add(planned.entries[0].session_id)
                return None
        return [self._fail(outcome) for outcome in outcomes] if faults.fail else outcomes

    def _is_bad(self, session_id: bytes) -> bool:
        """Ids are random, so they tell; and it is the same whenever it is asked."""
        return int.from_bytes(session_id[:4], "big") < self._faults.bad * 2**32

    def _fail(self, outcome: Outcome) -> Outcome:
        if self._random.random() >= self._faults.fail:
            return outcome
        self.num_faults += 1
        self.given_up.add(outcome.session_id)
        return replace(outcome, tokens=(), num_accepted=0, failed=WHY)
