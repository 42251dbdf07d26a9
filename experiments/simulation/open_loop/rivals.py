"""The serving systems of SLOs-Serve's paper, token by token but without nodes and messages: vLLM, Sarathi, DistServe.

The paper gives every system the lengths of texts. So memory for a whole text may be reserved before its prompt is read;
otherwise the latest text makes room, and is read again. Requests are taken first come, first served. The draft model
shares the target's device: how long a round takes depends on its steps, too.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import TypeAlias

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.service import Request, Served, Service
from goodspeed.fair.round_time import CostModel


@dataclass(frozen=True)
class Kind:
    """The way in which a device forms its rounds."""

    cost: Callable[[int], CostModel]  # of a round, by the steps of the draft model in it
    pool_tokens: int  # of its memory
    reserves: bool = True  # memory for whole texts
    most_prompt_tokens: int = 2048  # of a round that only reads prompts
    decode_first: int | None = None  # tokens of every round, of which prompts get what texts leave; None: prompts first
    num_drafted: int = 0  # of each text in every round without prompts
    only_prompts: bool = False  # texts go on elsewhere, after their first token


class Text(Request):
    """One request, and which drafted tokens of it are accepted."""

    def __init__(self, arrival: Arrival) -> None:
        super().__init__(arrival)
        self._random = Random(repr(arrival.acceptance))

    def accepted(self, num_drafted: int) -> int:
        """Returns how many of so many drafted tokens are accepted."""
        for number in range(num_drafted):
            if self._random.random() >= self.arrival.acceptance.rate(self.tokens + number, 0, True):
                return number
        return num_drafted


class Device:
    """One GPU with the model."""

    def __init__(self, kind: Kind, finish: Callable[[Text, float], None]) -> None:
        """finish: called with a text that this device is done with, and when."""
        self.kind, self._finish = kind, finish
        self.now = self.busy_s = 0.0
        self.num_rounds = self.num_preempted = 0
        self.load = 0  # prompt tokens of all texts that are here
        self._waiting: deque[Text] = deque()
        self._reading: list[Text] = []
        self._writing: list[Text] = []
        self._used = 0  # tokens of memory

    def add(self, text: Text, at_s: float) -> None:
        self.advance(at_s)
        self.now = max(self.now, at_s) if not (self._waiting or self._reading or self._writing) else self.now
        self._waiting.append(text)
        self.load += text.arrival.prompt_tokens

    def advance(self, until_s: float) -> None:
        """Computes all rounds that begin before then."""
        while self.now < until_s and self._round():
            pass

    def _round(self) -> bool:
        """One round; False: there is nothing to do."""
        kind = self.kind
        while self._waiting and self._used + self._needed(self._waiting[0]) <= kind.pool_tokens:
            text = self._waiting.popleft()
            self._used += self._needed(text)
            (self._reading if text.unread else self._writing).append(text)
        if not (self._reading or self._writing):
            return False
        decodes = self._writing if kind.decode_first is not None or not self._reading else []
        num_drafted = 0 if self._reading else kind.num_drafted
        self._make_room(decodes, 1 + num_drafted)
        num_tokens = (1 + num_drafted) * len(decodes)
        room = kind.most_prompt_tokens if kind.decode_first is None else max(1, kind.decode_first - num_tokens)
        read = [0]
        for text in self._reading:
            taken = min(text.unread, room - read[0])
            text.unread -= taken
            read[0] += taken
        seconds = kind.cost(num_drafted).round_s(num_tokens + read[0], len(decodes), 0)
        self.now += seconds
        self.busy_s += seconds
        self.num_rounds += 1
        for text in decodes:
            self._write(text, 1 + text.accepted(num_drafted))
        self._sort()
        return True

    def _needed(self, text: Text) -> int:
        return text.tokens + (text.left if self.kind.reserves else 0)

    def _make_room(self, decodes: list[Text], each: int) -> None:
        """Preempts the latest texts until so many tokens of each fit; the one that is left always does."""
        while not self.kind.reserves and len(decodes) > 1 and self._used + each * len(decodes) > self.kind.pool_tokens:
            text = decodes.pop()
            self._used -= text.tokens
            text.unread = text.tokens
            self._waiting.appendleft(text)
            self.num_preempted += 1

    def _write(self, text: Text, num_tokens: int) -> None:
        num_written = text.write(num_tokens, self.now)
        self._used += 0 if self.kind.reserves else num_written

    def _sort(self) -> None:
        """Texts whose prompts are read get their first token; those that are over leave."""
        for text in [text for text in self._reading if not text.unread]:
            self._write(text, 1)
            self._reading.remove(text)
            self._writing.append(text)
        for text in [text for text in self._writing if not text.left or self.kind.only_prompts]:
            self._writing.remove(text)
            self._used -= self._needed(text)
            self.load -= text.arrival.prompt_tokens
            self._finish(text, self.now)


def alone(kind: Kind, arrivals: Sequence[Arrival]) -> Service:
    """One device that reads prompts and writes texts: vLLM, or Sarathi."""
    over: list[Text] = []
    device = Device(kind, lambda text, now: over.append(text))
    for arrival in arrivals:
        device.add(Text(arrival), arrival.at_s)
    device.advance(inf)
    return _service(over, [device])


def parted(kind: Kind, num_prefill: int, num_decode: int, arrivals: Sequence[Arrival]) -> Service:
    """DistServe: devices that read prompts and others that write texts; moving keys and values takes no time.

    A request goes to the device with the fewest prompt tokens, for either.
    """
    over: list[Text] = []
    begun: list[tuple[float, Text]] = []
    prompts = replace(kind, only_prompts=True)
    readers = [Device(prompts, lambda text, now: begun.append((now, text))) for _ in range(num_prefill)]
    for arrival in arrivals:
        for device in readers:
            device.advance(arrival.at_s)
        min(readers, key=lambda one: one.load).add(Text(arrival), arrival.at_s)
    for device in readers:
        device.advance(inf)
    writers = [Device(kind, lambda text, now: over.append(text)) for _ in range(num_decode)]
    for at_s, text in sorted(begun, key=lambda pair: pair[0]):
        if not text.left:
            over.append(text)
            continue
        for device in writers:
            device.advance(at_s)
        min(writers, key=lambda one: one.load).add(text, at_s)
    for device in writers:
        device.advance(inf)
    return _service(over, [*readers, *writers])


def _service(over: Sequence[Text], devices: Sequence[Device]) -> Service:
    texts = [Served.by(text.times) for text in over]
    seconds = max(device.now for device in devices)
    num_rounds, busy_s = sum(one.num_rounds for one in devices), sum(one.busy_s for one in devices) / len(devices)
    return Service(
        texts,
        seconds,
        num_rounds,
        busy_s,
        num_verdicts=sum(text.num_tokens for text in texts),
        num_preempted=sum(device.num_preempted for device in devices),
    )


# -- the paper's baselines ---------------------------------------------------------------------------------------------

VLLM, VLLM_SPEC, SARATHI, DISTSERVE = BASELINES = ("vLLM", "vLLM (Spec)", "Sarathi", "DistServe")

LENGTHS = (1, 2, 3, 4, 5, 6)
"""Fixed numbers of drafted tokens that vLLM is tried with."""

CHUNKS = (256, 512, 1024, 2048)
"""Tokens of a round that Sarathi is tried with, beside those that keep the tightest TPOT: ten tokens have to be in
time, so a round may take longer."""

SHAPES = ((1, 1), (2, 1), (1, 2))
"""Numbers of DistServe's devices for prompts and for texts."""

Variant: TypeAlias = tuple[int, Callable[[Sequence[Arrival]], Service]]
"""The number of GPUs, and what serves requests with them."""


def variants(kind: Kind, tightest: int) -> Mapping[str, Mapping[str, Variant]]:
    """Every baseline in each of its variants, of which the best one counts.

    Each is tried with memory reserved for whole texts, and with preemption. tightest: tokens of a round of the tightest
    TPOT.
    """
    found: dict[str, dict[str, Variant]] = {name: {} for name in BASELINES}
    for reserves in (True, False):
        memory = "reserved" if reserves else "preempted"
        vllm = replace(kind, reserves=reserves, num_drafted=0)
        found[VLLM][memory] = 1, partial(alone, vllm)
        for chunk in sorted({tightest, *CHUNKS}):
            found[SARATHI][f"{chunk}, {memory}"] = 1, partial(alone, replace(vllm, decode_first=chunk))
        for length in LENGTHS:
            found[VLLM_SPEC][f"{length}, {memory}"] = 1, partial(alone, replace(vllm, num_drafted=length))
        for shape in SHAPES:
            name = f"{shape[0]}:{shape[1]}, {memory}"
            found[DISTSERVE][name] = sum(shape), partial(parted, vllm, *shape)
    return found
