"""What comes when something comes: requests of several kinds, by chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from experiments.simulation.arrivals import Arrival
from experiments.simulation.open_loop.uneven import Uneven
from goodspeed.slo.objectives import Objectives


@dataclass(frozen=True)
class Kind:
    """One kind of request; all of a kind are alike but for their texts."""

    name: str
    share: float  # of all requests
    prompt_tokens: int
    output_tokens: int
    acceptance: float  # mean probabilities of a drafted token
    tpot_s: float | None = None  # its service level; None: none

    def arrival(self, at_s: float, evenness: float, random: Random) -> Arrival:
        """One request. evenness: of the probabilities of its drafted tokens (`uneven.py`)."""
        text = Uneven(self.acceptance, evenness, random.getrandbits(50))
        slo = None if self.tpot_s is None else Objectives(tpot_s=self.tpot_s, tier=self.name)
        return Arrival(at_s, self.prompt_tokens, self.output_tokens, text, slo)


def mixed(times: Sequence[float], kinds: Sequence[Kind], evenness: float, random: Random) -> list[Arrival]:
    """Requests at these times, each of a kind by the kinds' shares."""
    shares = [kind.share for kind in kinds]
    return [random.choices(kinds, shares)[0].arrival(at_s, evenness, random) for at_s in times]


def bells(
    peaks: Sequence[tuple[float, Kind]], each: int, spread_s: float, end_s: float, evenness: float, random: Random
) -> list[Arrival]:
    """So many requests of each kind around its peak, in seconds. spread_s: standard deviation.

    Those that would come after `end_s` come at `end_s`.
    """
    times = [(min(max(0.0, random.gauss(at_s, spread_s)), end_s), kind) for at_s, kind in peaks for _ in range(each)]
    return [kind.arrival(at_s, evenness, random) for at_s, kind in sorted(times, key=lambda pair: pair[0])]
