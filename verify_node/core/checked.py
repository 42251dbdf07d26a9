"""A verify core that looks at itself after every event: for tests and simulated worlds, where nothing may be wrong.

Slow: every event checks every session and page. Adds no rule.
"""

from collections.abc import Mapping, Sequence

from goodspeed.errors import ProtocolError
from goodspeed.fleet.replicas import Replica
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.messages import UpMessage
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.scheduler.round import Outcome, Round


class CheckedCore(VerifyCore):
    """Raises BrokenInvariant from the event after which something does not hold any more."""

    def enrol(self, enrolled: Mapping[str, Enrolled], now: float) -> list[Send]:
        return self._checked(super().enrol(enrolled, now))

    def know_replicas(self, own: str, replicas: Sequence[Replica], now: float) -> list[Send]:
        return self._checked(super().know_replicas(own, replicas, now))

    def farewell(self, now: float) -> list[Send]:
        return self._checked(super().farewell(now))

    def receive(self, peer_id: bytes, message: UpMessage, now: float, principal: str | None = None) -> list[Send]:
        return self._checked(super().receive(peer_id, message, now, principal))

    def reject(self, peer_id: bytes, error: ProtocolError, now: float, principal: str | None = None) -> list[Send]:
        return self._checked(super().reject(peer_id, error, now, principal))

    def tick(self, now: float) -> list[Send]:
        return self._checked(super().tick(now))

    def admit(self, now: float) -> list[Send]:
        return self._checked(super().admit(now))

    def withdraw(self, now: float) -> list[Send]:
        return self._checked(super().withdraw(now))

    def plan(self, now: float) -> Round | None:
        planned = super().plan(now)
        self.validate()
        return planned

    def finish(self, outcomes: Sequence[Outcome], duration_s: float, now: float) -> list[Send]:
        return self._checked(super().finish(outcomes, duration_s, now))

    def abort(self, why: str, now: float) -> list[Send]:
        return self._checked(super().abort(why, now))

    def _checked(self, sends: list[Send]) -> list[Send]:
        self.validate()
        return sends
