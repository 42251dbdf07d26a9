"""n-gram indexes of simulated draft nodes: the real one, one that is often right, one that says anything, and records.

Texts of the simulated target are hashes, in which the real index finds matches by chance only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from draft_node.core.drafts.ngrams import NgramDrafter, Ngrams
from draft_node.core.generation import Generation
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.draft_model import drawn
from experiments.simulation.texts.recorded import RecordedDrafter, RecordedText
from experiments.simulation.texts.text import VOCAB, feed, feed_all, start
from goodspeed.errors import ConfigError
from goodspeed.ngram.drafting import Continuation
from goodspeed.ngram.history import History

NgramKind: TypeAlias = Literal["off", "index", "right", "hostile", "own", "history"]

MAX_TOKENS = 2_000
RIGHT = 0.8
"""Default rate at which a token of the index that is often right is the target's."""


@dataclass(slots=True)
class RightDrafter(NgramDrafter):
    """Drafts the target's own tokens at a rate, and says so."""

    rate: float = RIGHT

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        state = feed_all(start(self.request.sampling.seed), tokens)
        drafted: list[int] = []
        probabilities, least_probability = self.rate, self.bound(least_probability)
        while len(drafted) < length and probabilities >= least_probability:
            token, _ = drawn(state, self.rate)
            drafted.append(token)
            state = feed(state, token)
            probabilities *= self.rate
        return Continuation(tuple(drafted), (self.rate,) * len(drafted))


@dataclass(slots=True)
class HostileDrafter(NgramDrafter):
    """Drafts any tokens, with any probabilities, beyond the text's end and whatever the least probability is."""

    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.request.session_id)

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        random = self._random
        drafted = tuple(random.randrange(VOCAB) for _ in range(random.randint(0, length)))
        return Continuation(drafted, tuple(random.choice([0.0, 1.0, random.random()]) for _ in drafted))


@dataclass(slots=True)
class SimulatedNgrams(Ngrams):
    """Gives each session an index of its node's kind; a node's histories end with its process."""

    history: History = field(default_factory=lambda: History(MAX_TOKENS, per_user=True))
    kind: NgramKind = "index"
    acceptances: Mapping[bytes, Acceptance] = field(default_factory=dict)  # of the node's sessions
    rate: float = RIGHT  # of kind `right`

    def begin(self, request: Generation) -> NgramDrafter | None:
        if self.kind in ("own", "history"):
            recorded = self.acceptances.get(request.session_id)
            if not isinstance(recorded, RecordedText):
                raise ConfigError("an index replays what was recorded, and of this text nothing was")
            return RecordedDrafter(request, self.history, self.least_probability, recorded=recorded, source=self.kind)
        if self.kind == "right":
            return RightDrafter(request, self.history, self.least_probability, rate=self.rate)
        if self.kind == "hostile":
            return HostileDrafter(request, self.history, self.least_probability)
        return Ngrams.begin(self, request)


def make_ngrams(kind: NgramKind, acceptances: Mapping[bytes, Acceptance], rate: float = RIGHT) -> Ngrams | None:
    """The index of a node that begins, with what is recorded of its sessions; None: it drafts without."""
    return SimulatedNgrams(kind=kind, acceptances=acceptances, rate=rate) if kind != "off" else None
