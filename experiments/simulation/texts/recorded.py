"""Replays recorded proposals (`proposals.py`) in a world: what a draft model, an index and the verify node draft.

Tokens are the simulated target's where the recorded ones were right, others from the first wrong one on. Nothing that
is claimed depends on what the target says next, as it did not when it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random

from draft_node.core.drafts.ngrams import NgramDrafter
from experiments.simulation.texts import proposals
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.proposals import RATE_OFF_PATH, Proposal, Source, Text
from experiments.simulation.texts.text import VOCAB, draw, feed, feed_all, start
from goodspeed.errors import ConfigError
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire import probabilities
from verify_node.scheduler.drafts import MAX_LENGTH, SelfDrafts
from verify_node.session.session import Session


class RecordedText:
    """One text's proposals by position; a longer text goes through it again. It is an acceptance process, too."""

    def __init__(self, text: Text, draft_model: str) -> None:
        self.text = text
        self._path = text.models[draft_model]
        self._probabilities = probabilities.decode(proposals.read(self._path.probabilities))
        self._length = len(self._path.agreed)

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        """Returns how often the draft model's token there agrees with the target's."""
        return float(self._path.agreed[self._at(position)]) if on_path else RATE_OFF_PATH

    def probabilities(self, position: int, offset: int) -> float:
        """Returns the probability that the draft model claims there; it was asked after the target's own tokens
        only."""
        return self._probabilities[self._at(position)]

    def proposal(self, source: Source, position: int) -> Proposal:
        """The index's proposal there."""
        return proposals.parted(self.text.own if source == "own" else self.text.history)[self._at(position)]

    def _at(self, position: int) -> int:
        return (position - self.text.prompt_len) % self._length


def replayed(proposal: Proposal, state: int, length: int, least_probability: float) -> Continuation:
    """A proposal in the simulated text that has this state, ended like `goodspeed.ngram.drafting.draft`."""
    drafted: list[int] = []
    claimed: list[float] = []
    path_probability = 1.0
    for at, chance in enumerate(probabilities.decode(proposal.codes[:length])):
        path_probability *= chance
        if path_probability < least_probability:
            break
        right, _ = draw(state)
        drafted.append(right if at < proposal.num_right else (right + 1) % VOCAB)
        claimed.append(chance)
        state = feed(state, drafted[-1])
    return Continuation(tuple(drafted), tuple(claimed))


@dataclass(slots=True)
class RecordedDrafter(NgramDrafter):
    """A draft node's index, which says what was recorded."""

    recorded: RecordedText = field(kw_only=True)
    source: Source = field(kw_only=True)

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        request = self.request
        room = len(request.prompt) + request.max_tokens - len(tokens) - 1
        state = feed_all(start(request.sampling.seed), tokens)
        proposal = self.recorded.proposal(self.source, len(tokens))
        least_probability = self.bound(least_probability)
        return replayed(proposal, state, max(0, min(length, room)), least_probability)


class RecordedSelfDrafts(SelfDrafts):
    """The verify node's own drafts, as they were recorded from texts alone; nothing for texts of other kinds."""

    def __init__(self, acceptance: Callable[[bytes], Acceptance | None]) -> None:
        """acceptance: of a session by its id."""
        super().__init__()
        self._acceptance = acceptance

    def _find(self, session: Session, length: int, least_probability: float) -> Continuation:
        recorded = self._acceptance(session.session_id)
        if not isinstance(recorded, RecordedText):
            return Continuation((), ())
        state = feed_all(start(session.opened.sampling.seed), session.tokens)
        proposal = recorded.proposal("own", len(session.tokens))
        return replayed(proposal, state, min(MAX_LENGTH, length), least_probability)


class RecordedTexts:
    """The texts of a world: each client has a domain of its own, whose texts come in turn; the seed orders both."""

    def __init__(
        self, draft_models: Sequence[str], temperature: float, seed: int, path: Path = proposals.SHIPPED
    ) -> None:
        """draft_models: of each client. path: file of the texts."""
        texts = [text for text in proposals.load(path) if text.temperature == temperature]
        if not texts:
            raise ConfigError(f"no texts were recorded at temperature {temperature}")
        self.names = sorted({text.domain for text in texts})
        Random(seed).shuffle(self.names)
        Random(seed).shuffle(texts)
        self._models = tuple(draft_models)
        self._texts = [
            [text for text in texts if text.domain == name]
            for _, name in zip(draft_models, cycle(self.names), strict=False)
        ]

    @property
    def rates(self) -> list[float]:
        """The draft model's acceptance in the domain of each client, one for each domain that there is."""
        found = [
            [agreed == "1" for text in texts for agreed in text.models[model].agreed]
            for texts, model in zip(self._texts[: len(self.names)], self._models, strict=False)
        ]
        return [sum(each) / len(each) for each in found]

    def text(self, client: int, number: int) -> Text:
        texts = self._texts[client]
        return texts[number % len(texts)]

    def __call__(self, client: int, number: int) -> RecordedText:
        return RecordedText(self.text(client, number), self._models[client])
