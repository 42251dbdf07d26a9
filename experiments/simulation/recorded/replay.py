"""Acceptance replayed from what agreed in real runs (`recordings.py`), and the survival curve that it comes to."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from experiments.simulation.recordings import UNKNOWN, Agreement
from experiments.simulation.texts import proposals
from goodspeed.errors import ConfigError
from goodspeed.wire import probabilities


@dataclass(slots=True)
class Counts:
    """Counts of the positions that were asked for, and of those that had not been recorded."""

    num_asked: int = 0
    num_unrecorded: int = 0
    num_unrecorded_on_path: int = 0  # of these, tokens that the target may accept

    @property
    def share_unrecorded(self) -> float:
        return self.num_unrecorded / self.num_asked if self.num_asked else 0.0


class Replayed:
    """One text's agreement, position by position, off the path too; a longer text goes through it again.

    Where nothing was recorded, and in a draft that passes such a position before it disagrees, the text's own rate
    decides by the hash that every draw is made with: the one on the path, or the one off it. `counts` tells how
    often.
    """

    def __init__(self, agreement: Agreement, counts: Counts | None = None) -> None:
        self.agreement = agreement
        self.counts = counts if counts is not None else Counts()
        self._rate, self._rate_off_path = agreement.rate, agreement.rate_off_path
        self._right = _distances(agreement.path)
        self._claimed = probabilities.decode(proposals.read(agreement.probabilities))

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        self.counts.num_asked += 1
        at = position - self.agreement.prompt_len
        known = self.agreement.path[at % len(self._right)] if on_path else self._off_path(at, at - offset)
        if known != UNKNOWN:
            return float(known)
        self.counts.num_unrecorded += 1
        self.counts.num_unrecorded_on_path += on_path
        return self._rate if on_path else self._rate_off_path

    def probabilities(self, position: int, offset: int) -> float:
        """Returns what the draft model claimed there after the target's own tokens. Without a recorded claim it returns
        the text's own rate, since no draft model knows whether this token agrees."""
        if not self._claimed:
            return self._rate
        return self._claimed[(position - self.agreement.prompt_len) % len(self._claimed)]

    def _off_path(self, at: int, base: int) -> str:
        """Returns what was recorded at `at` of a draft that begins at `base` and has disagreed since."""
        left = base + self._right[base % len(self._right)]
        branch = self.agreement.branches.get(left % len(self._right), "")
        return branch[at - left - 1] if 0 < at - left <= len(branch) else UNKNOWN


def _distances(path: str) -> list[int]:
    """Distance from each position to the next that does not surely agree (0: itself); the path is a circle."""
    length = len(path)
    found = [0] * length
    distance = length
    for position in reversed(range(2 * length)):
        distance = 0 if path[position % length] != "1" else min(distance + 1, length)
        found[position % length] = distance
    return found


class Replay:
    """Acceptance processes for a world: client i is of domain i, and its n-th session replays that domain's n-th text.

    Its `sizes` are the texts' own.
    """

    def __init__(self, agreements: Sequence[Agreement], domains: Sequence[str] | None = None) -> None:
        """domains: of the clients, from the beginning again if they are more; default: all, by name."""
        self.domains = tuple(domains or sorted({one.domain for one in agreements}))
        self.counts = Counts()
        self._texts = [[one for one in agreements if one.domain == domain] for domain in self.domains]
        for domain, texts in zip(self.domains, self._texts, strict=True):
            if not texts:
                raise ConfigError(f"nothing of the domain {domain!r} was recorded")

    def text(self, client: int, number: int) -> Agreement:
        texts = self._texts[client % len(self._texts)]
        return texts[number % len(texts)]

    def __call__(self, client: int, number: int) -> Replayed:
        return Replayed(self.text(client, number), self.counts)

    def sizes(self, client: int, number: int) -> tuple[int, int]:
        """Tokens of the prompt, and of the text."""
        text = self.text(client, number)
        return text.prompt_len, len(text.path)


def survival(agreements: Iterable[Agreement], longest: int) -> tuple[float, ...]:
    """P(the first s drafted tokens are all accepted), s = 1..longest, over all positions that a draft may begin at.

    Where a text ends or something is unknown, a draft is counted as far as it is known (Kaplan and Meier's estimate).
    """
    reached, went_on = [0] * longest, [0] * longest
    for run, ended in (run for one in agreements for run in _runs(one.path)):
        for position in range(min(run, longest)):
            reached[position] += 1
            went_on[position] += 1
        if ended and run < longest:
            reached[run] += 1
    curve, chance = [], 1.0
    for num_reached, num_on in zip(reached, went_on, strict=True):
        chance *= num_on / num_reached if num_reached else 0.0
        curve.append(chance)
    return tuple(curve)


def _runs(path: str) -> Iterator[tuple[int, bool]]:
    """Yields for each position how many from there on agree, and whether a disagreement ended them."""
    run, ended = 0, False
    for agreed in reversed(path):
        run, ended = (run + 1, ended) if agreed == "1" else (0, agreed == "0")
        yield run, ended
