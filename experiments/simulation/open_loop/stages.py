"""Requests of stages: a prompt that is read by a multiple of the time that it takes alone, and an answer at a TPOT.

Every request is drawn from its own place in the trace, so it is the same one at every rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.lengths import Lengths
from experiments.simulation.open_loop.uneven import Uneven
from goodspeed.slo.objectives import Objectives


@dataclass(frozen=True)
class Stage:
    """One kind of request, by the distributions of its lengths and by its service level."""

    name: str
    share: float  # of all requests
    prompt: Lengths
    output: Lengths
    slowdown: float  # its TTFT over the time in which its prompt is read alone
    tpot_ms: float


@dataclass(frozen=True)
class Texts:
    """How hard drafted tokens are to get right."""

    acceptance: float  # mean probabilities of a drafted token
    evenness: float  # of these (`uneven.py`)


def requests(
    times: Sequence[float], stages: Sequence[Stage], texts: Texts, alone_s: Callable[[int], float], random: Random
) -> list[Arrival]:
    """One request at each of these times. alone_s: seconds in which a prompt of so many tokens is read alone."""
    shares = [stage.share for stage in stages]
    return [_request(at_s, random.choices(stages, shares)[0], texts, alone_s, random) for at_s in times]


def _request(at_s: float, stage: Stage, texts: Texts, alone_s: Callable[[int], float], random: Random) -> Arrival:
    prompt, output = stage.prompt.drawn(random.random()), stage.output.drawn(random.random())
    text = Uneven(texts.acceptance, texts.evenness, random.getrandbits(50))
    slo = Objectives(stage.slowdown * alone_s(prompt), stage.tpot_ms / 1000, stage.name)
    return Arrival(at_s, prompt, output, text, slo)
