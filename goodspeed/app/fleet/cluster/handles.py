"""What can be asked of a fleet, through Ray. To be imported by `connected` of `others.py` only, after Ray's settings.

Knows nothing about who runs that Ray.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import ray

from goodspeed.app.fleet.cluster import actors
from goodspeed.app.fleet.keeping.keeper import DRAIN_S, Report
from goodspeed.app.fleet.keeping.plan import Plan
from goodspeed.errors import ProcessError

ANSWER_S = 30.0


@contextmanager
def connected(name: str, address: str) -> Iterator[None]:
    """Connects to a Ray for the length of a block; ProcessError where that fails."""
    try:
        ray.init(
            address=address,
            namespace=actors.namespace(name),
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
        )
    except Exception as error:  # of many kinds, by version and by how it is reached
        words = str(error).strip().partition("\n")[0]
        raise ProcessError(
            f"cannot connect to Ray at {address}: {words[:200]}; check --address, and `ray status`"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


class Fleet:
    """A fleet that is up, while `connected`."""

    def __init__(self, roster: Any) -> None:
        self._roster = roster

    @classmethod
    def begin(cls, plan: Plan) -> "Fleet":
        """Starts the roster of a new fleet, or goes on with the one that there is, and adds its replicas."""
        try:
            fleet = cls.find()
        except ProcessError:
            fleet = cls(actors.start_roster(plan))
        fleet.scale(plan.replicas)
        return fleet

    @classmethod
    def find(cls) -> "Fleet":
        """Returns the fleet of this namespace; ProcessError where Ray knows none."""
        try:
            return cls(ray.get_actor(actors.ROSTER))
        except ValueError:
            raise ProcessError("Ray is there, and knows nothing of this fleet; try `goodspeed-fleet down`") from None

    def reports(self) -> tuple[list[Report], list[str]]:
        """Returns what is known of each replica, and the names of all."""
        return msgspec.json.decode(self._ask("status"), type=tuple[list[Report], list[str]])

    def scale(self, number: int) -> None:
        self._ask("scale", number)

    def drain(self, name: str, timeout_s: float = DRAIN_S) -> None:
        self._ask("drain", name, timeout_s)

    def end(self) -> None:
        """Ends the roster, and what is left of its keepers."""
        for name in self.reports()[1]:
            actors.forget_keeper(name)
        ray.kill(self._roster, no_restart=True)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return ray.get(getattr(self._roster, method).remote(*arguments), timeout=ANSWER_S)
        except ray.exceptions.RayError as error:
            words = str(error).strip().partition("\n")[0]
            raise ProcessError(f"the fleet does not answer: {words[:200]}; try `goodspeed-fleet status`") from None
