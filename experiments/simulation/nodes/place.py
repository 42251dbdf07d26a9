"""A verify node's end of the network: who is connected to it, and what is on its way there and back."""

from experiments.simulation.network import Line
from experiments.simulation.nodes.surroundings import Receiver
from experiments.simulation.nodes.verify import VerifyNode
from goodspeed.wire.messages import DownMessage, Refusal, UpMessage


class Place:
    """The place of one verify node."""

    verify: VerifyNode

    def __init__(self) -> None:
        self.refusals: dict[str, int] = {}
        self.peers: dict[bytes, Receiver] = {}

    def connect(self, peer_id: bytes, receiver: Receiver) -> None:
        """Sends messages for this name to the receiver from now on."""
        self.peers[peer_id] = receiver

    def disconnect(self, peer_id: bytes) -> None:
        """Loses all messages on their way to or from this name."""
        self.peers.pop(peer_id, None)

    def send_up(self, line: Line, peer_id: bytes, message: UpMessage) -> None:
        line.up(message, self._arrive_up, self.verify.num_targets, peer_id)

    def _arrive_up(self, target: int, peer_id: bytes, message: UpMessage) -> None:
        if target == self.verify.num_targets and peer_id in self.peers:
            self.verify.receive(peer_id, message)

    def send_down(self, peer_id: bytes, message: DownMessage) -> None:
        if isinstance(message, Refusal):
            self.refusals[message.code] = self.refusals.get(message.code, 0) + 1
        receiver = self.peers.get(peer_id)
        if receiver is not None:
            receiver.line.down(message, self._arrive_down, self.verify.num_targets, receiver, peer_id)

    def _arrive_down(self, target: int, receiver: Receiver, peer_id: bytes, message: DownMessage) -> None:
        """Messages are late by seconds here, but none outlives a target: no connection outlives the process with it.

        Else a Welcome of the target before could come after that of its successor, and nothing tells them apart.
        """
        if target == self.verify.num_targets:
            receiver.receive(peer_id, message)
