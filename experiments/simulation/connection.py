"""The connection of a simulated draft node to the verify node, and what befalls it.

Knows nothing about what is sent.
"""

from experiments.simulation.surroundings import Receiver, Surroundings


class Connection:
    """The newest connection of one draft node; every process, and every connection of it, has a name of its own."""

    def __init__(self, world: Surroundings, receiver: Receiver, index: int) -> None:
        self.peer_id = b""
        self.number = 0  # of this process
        self.is_refused = self.is_broken = False  # the node learns of that at the next tick
        self.refused_until = 0.0  # no connection is taken
        self.struck_at = 0.0  # it was lost
        self._world = world
        self._receiver = receiver
        self._index = index
        self._num_boots = 0

    def boot(self, num_boots: int) -> None:
        """The first connection of a new process."""
        self._num_boots = num_boots
        self.number = 0
        self.is_broken = False
        self._begin(b"peer-" + f"{self._index}-{num_boots}".rjust(8).encode())

    def renew(self) -> None:
        """Makes another connection, with a name of its own."""
        self._world.disconnect(self.peer_id)
        self.number += 1
        self._begin(b"peer-%d-%d/%d" % (self._index, self._num_boots, self.number))

    def _begin(self, peer_id: bytes) -> None:
        self.peer_id = peer_id
        self.is_refused = self._world.clock.now < self.refused_until
        if not self.is_refused:
            self._world.connect(peer_id, self._receiver)

    # faults

    def lose(self) -> None:
        """What is on it is lost. The socket makes another by itself, of which the verify node knows nothing."""
        self.strike()
        self.renew()
        self.is_broken = True

    def strike(self) -> None:
        """Something on it is lost."""
        self.struck_at = self._world.clock.now

    def turn_away(self, seconds: float) -> None:
        """The connection is lost, and no other is taken for so long."""
        self.refused_until = self._world.clock.now + seconds
        self.renew()

    def found_broken(self) -> bool:
        """Whether it was lost since the node last looked."""
        was_broken, self.is_broken = self.is_broken, False
        return was_broken
