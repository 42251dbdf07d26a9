"""A round of the simulated verify node, as those who watch the world are told of it. Plain data."""

from dataclasses import dataclass

from goodspeed.wire.messages import Verdict
from verify_node.scheduler.round import Round


@dataclass(frozen=True, slots=True)
class Finished:
    """A round as the verify node saw it."""

    round: Round
    started: float  # virtual time
    waited_s: float  # for drafts, since the round before
    duration_s: float
    verdicts: tuple[Verdict, ...]
    send_s: float = 0.0  # what they take on the verify node's line; the wait for the next round begins with it
