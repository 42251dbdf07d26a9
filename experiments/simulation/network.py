"""The lines between the draft nodes and the verify node: latency, bandwidth, and what goes wrong on them."""

from collections.abc import Callable
from random import Random
from typing import Any

from experiments.simulation.clock import Clock
from experiments.simulation.settings import Settings, of_client
from goodspeed.wire import codec
from goodspeed.wire.messages import DownMessage, Draft, OpenSession, UpMessage, Verdict

MAX_BYTES = 1 << 20
HEADER_BYTES = 60.0  # about what a message takes without its tokens
TOKEN_BYTES = 3.0


def verdict_bytes(verdict: Verdict) -> float:
    return HEADER_BYTES + TOKEN_BYTES * len(verdict.tokens)


class Trunk:
    """The verify node's own line, if it is narrow: everybody's messages queue on it, each way by itself."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock = clock
        self._s_per_byte = 1.0 / bytes_per_s
        self._free_at = {"up": 0.0, "down": 0.0}

    def seconds(self, num_bytes: float) -> float:
        return num_bytes * self._s_per_byte

    def send(self, num_bytes: float) -> float:
        """Returns when the last byte is on its way."""
        self._free_at["down"] = max(self._clock.now, self._free_at["down"]) + self.seconds(num_bytes)
        return self._free_at["down"]

    def receive(self, num_bytes: float, line_s: float) -> float:
        """Returns when the last byte is in. It has left a draft node's line just now, `line_s` after the first."""
        started = max(self._clock.now - line_s, self._free_at["up"])
        self._free_at["up"] = max(self._clock.now, started + self.seconds(num_bytes))
        return self._free_at["up"]


class Line:
    """Both ways between one draft node and the verify node. Messages queue for the bandwidth, each way by itself."""

    def __init__(self, clock: Clock, random: Random, settings: Settings, index: int, trunk: Trunk | None) -> None:
        self.latency_s = of_client(settings.latency_s, index)
        self.cut_until = 0.0
        self.num_faults = 0
        self._clock = clock
        self._random = random
        self._faults = faults = settings.faults
        self._is_good = not (faults.lose or faults.repeat or faults.jitter_s or faults.cut_every_s)
        self._once = (self.latency_s,)
        self._s_per_byte = 1.0 / of_client(settings.bytes_per_s, index)
        self._drafted_bytes = settings.drafted_bytes
        self._through_codec = settings.through_codec
        self._trunk = trunk
        self._free_at = {"up": 0.0, "down": 0.0}

    def up(self, message: UpMessage, deliver: Callable[..., None], *arguments: Any) -> None:
        """Calls deliver(*arguments, message) as often and when the line has it so."""
        if self._through_codec:
            message = codec.decode_up(codec.encode(message, MAX_BYTES), MAX_BYTES)
        self._carry("up", message, deliver, arguments)

    def down(self, message: DownMessage, deliver: Callable[..., None], *arguments: Any) -> None:
        if self._through_codec:
            message = codec.decode_down(codec.encode(message, MAX_BYTES), MAX_BYTES)
        self._carry("down", message, deliver, arguments)

    def _carry(
        self, way: str, message: UpMessage | DownMessage, deliver: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        sent_at, size = self._clock.now, 0.0
        if self._s_per_byte or self._trunk:
            size = self.num_bytes(message)
        if self._trunk and way == "down":
            sent_at = self._trunk.send(size)
        if self._s_per_byte:
            sent_at = max(sent_at, self._free_at[way]) + size * self._s_per_byte
            self._free_at[way] = sent_at
        for delay in self._fate():
            if self._trunk and way == "up":
                self._clock.at(sent_at + delay, self._through, self._trunk, size, deliver, *arguments, message)
            else:
                self._clock.at(sent_at + delay, deliver, *arguments, message)

    def _through(self, trunk: Trunk, size: float, deliver: Callable[..., None], *arguments: Any) -> None:
        self._clock.at(trunk.receive(size, size * self._s_per_byte), deliver, *arguments)

    def _fate(self) -> tuple[float, ...]:
        """Returns when the copies of a message arrive; none when it is lost."""
        if self._is_good:
            return self._once
        faults, random = self._faults, self._random
        if self._clock.now < self.cut_until or random.random() < faults.lose:
            self.num_faults += 1
            return ()
        copies = 2 if random.random() < faults.repeat else 1
        self.num_faults += copies - 1
        return tuple(self.latency_s + random.random() * faults.jitter_s for _ in range(copies))

    def num_bytes(self, message: UpMessage | DownMessage) -> float:
        """Estimates the message's size; to encode each message would take longer than all the rest."""
        match message:
            case Draft():
                return HEADER_BYTES + self._drafted_bytes * len(message.tokens)
            case Verdict():
                return verdict_bytes(message)
            case OpenSession():
                return HEADER_BYTES + TOKEN_BYTES * (len(message.prompt) + len(message.committed))
        return HEADER_BYTES
