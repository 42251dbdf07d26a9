"""The connections of a simulated draft node to verify nodes, and what befalls them."""

from collections.abc import Callable

from experiments.simulation.network import Line
from experiments.simulation.nodes.surroundings import Surroundings
from goodspeed.wire.messages import DownMessage, UpMessage


class Connection:
    """The newest connection of a draft node's link; every process, and every connection of it, has its own name."""

    def __init__(
        self, world: Surroundings, hear: Callable[[int, bytes, DownMessage], None], index: int, line: Line, link: int
    ) -> None:
        """hear: takes a message on a link for the process that connected by a name."""
        self.peer_id = b""
        self.number = 0  # of this process
        self.is_refused = self.is_broken = False  # the node learns of that at the next tick
        self.refused_until = 0.0  # no connection is taken
        self.struck_at = 0.0  # it was lost
        self.line = line
        self.place = world
        self._hear = hear
        self._index = index
        self._link = link
        self._suffix = b".%d" % link if link else b""
        self._num_boots = 0

    def boot(self, num_boots: int) -> None:
        """The first connection of a new process."""
        self._num_boots = num_boots
        self.number = 0
        self.is_broken = False
        self._begin(b"peer-" + f"{self._index}-{num_boots}".rjust(8).encode() + self._suffix)

    def renew(self) -> None:
        """Makes another connection, with a name of its own."""
        self.end()
        self.number += 1
        self._begin(b"peer-%d-%d/%d" % (self._index, self._num_boots, self.number) + self._suffix)

    def end(self) -> None:
        """Loses all messages on it."""
        self.place.disconnect(self.peer_id)

    def send(self, message: UpMessage) -> None:
        self.place.send_up(self.line, self.peer_id, message)

    def receive(self, peer_id: bytes, message: DownMessage) -> None:
        self._hear(self._link, peer_id, message)

    def _begin(self, peer_id: bytes) -> None:
        self.peer_id = peer_id
        self.is_refused = self.place.clock.now < self.refused_until
        if not self.is_refused:
            self.place.connect(peer_id, self)

    # faults

    def lose(self) -> None:
        """Loses all messages on it. The socket makes another by itself, unknown to the verify node."""
        self.strike()
        self.renew()
        self.is_broken = True

    def strike(self) -> None:
        """Something on it is lost."""
        self.struck_at = self.place.clock.now

    def turn_away(self, seconds: float) -> None:
        """The connection is lost, and no other is taken for so long."""
        self.refused_until = self.place.clock.now + seconds
        self.renew()

    def found_broken(self) -> bool:
        """True if it was lost since the node last looked."""
        was_broken, self.is_broken = self.is_broken, False
        return was_broken
