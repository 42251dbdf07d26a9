"""The world as its nodes see it: time, network, and finished rounds. `World` is one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from experiments.simulation.clock import Clock, Watch
from experiments.simulation.network import Line, Trunk
from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Acceptance
from goodspeed.wire.messages import DownMessage, UpMessage, Verdict
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
    work_s: float = 0.0  # of the node itself after the pass; then the verdicts leave


class Receiver(Protocol):
    """A connection of a draft node, as the network sees it."""

    line: Line

    def receive(self, peer_id: bytes, message: DownMessage) -> None:
        """A message for the process that connected by this name."""
        ...


class Surroundings(Protocol):
    """Time, the network, and who wants to know what happens."""

    settings: Settings
    clock: Clock
    trunk: Trunk | None
    on_round: Callable[[Finished], None] | None

    def watch(self) -> Watch:
        """A node's own clock."""
        ...

    def connect(self, peer_id: bytes, receiver: Receiver) -> None:
        """Sends messages for this name to the receiver from now on."""
        ...

    def disconnect(self, peer_id: bytes) -> None:
        """Loses all messages on their way to or from this name."""
        ...

    def end_connections(self, *, in_good_order: bool) -> None:
        """Ends the connections of all draft nodes, since the verify node ends. in_good_order: its last words arrive."""
        ...

    def send_up(self, line: Line, peer_id: bytes, message: UpMessage) -> None:
        """A draft node's message to the verify node."""
        ...

    def send_down(self, peer_id: bytes, message: DownMessage) -> None:
        """The verify node's message to a draft node."""
        ...

    def acceptance(self, session_id: bytes) -> Acceptance | None:
        """Returns how likely drafts of a session are accepted; None if no draft node knows it."""
        ...

    def request_over(self) -> None:
        """A user's request is over."""
        ...

    def join_next(self, num_rounds: int) -> None:
        """Lets the next client join if it is to come after at most `num_rounds` rounds."""
        ...
