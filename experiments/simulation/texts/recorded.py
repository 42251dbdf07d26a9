"""Replays recorded proposals (`proposals.py`) in a world: what a draft model, an index and the verify node draft.

Tokens are the simulated target's where the recorded ones were right, others from the first wrong one on. Nothing that
is claimed depends on what the target says next, as it did not when it was recorded.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle
from random import Random

from draft_node.core.drafts.ngrams import NgramDrafter
from experiments.simulation.texts import proposals
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.proposals import OffPath, Proposal, Source, Text
from experiments.simulation.texts.text import VOCAB, draw, feed, feed_all, start
from goodspeed.ngram.drafting import Continuation
from verify_node.scheduler.prompt_lookup import PromptLookup
from verify_node.session.session import Session


class RecordedText(Acceptance):
    """Proposals by position, of one text after the other; a longer text than all of them goes through them again.

    It is an acceptance process, too.
    """

    def __init__(self, texts: Sequence[Text], draft_model: str, off_path: OffPath) -> None:
        """off_path: of the draft model."""
        self._texts = texts
        self._paths = [text.models[draft_model] for text in texts]
        self._off_path = off_path
        self._begins = [0, *accumulate(text.num_tokens for text in texts)]

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        """Returns how often the draft model's token there agrees with the target's."""
        if not on_path:
            return self._off_path.agreed
        number, at = self._at(position)
        return float(self._paths[number].agreed[at])

    def probabilities(self, position: int, offset: int) -> float:
        """Returns the probability that the draft model claims there; it was asked after the target's own tokens
        only."""
        number, at = self._at(position)
        return self._paths[number].claims[at]

    def second(self, position: int, on_path: bool) -> float:
        """Returns whether the target's token there is the draft model's second choice."""
        if not on_path:
            return self._off_path.second
        number, at = self._at(position)
        return float(self._paths[number].ranks[at] == "2")

    def proposal(self, source: Source, position: int) -> Proposal:
        """The index's proposal there."""
        number, at = self._at(position)
        return self._texts[number].proposals(source)[at]

    def _at(self, position: int) -> tuple[int, int]:
        """Number of the text, and position in it."""
        at = (position - self._texts[0].prompt_len) % self._begins[-1]
        number = bisect_right(self._begins, at) - 1
        return number, at - self._begins[number]


def replayed(proposal: Proposal, state: int, length: int, least_probability: float) -> Continuation:
    """A proposal in the simulated text that has this state, ended like `goodspeed.ngram.drafting.draft`."""
    drafted: list[int] = []
    claimed: list[float] = []
    path_probability = 1.0
    for at, chance in enumerate(proposals.decode(proposal.codes[:length])):
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


class RecordedLookup(PromptLookup):
    """The verify node's own drafts, as they were recorded from texts alone; nothing for texts of other kinds."""

    def __init__(self, acceptance: Callable[[bytes], Acceptance | None]) -> None:
        """acceptance: of a session by its id."""
        super().__init__()
        self._acceptance = acceptance

    def find(self, session: Session, length: int, least_probability: float) -> Continuation:
        recorded = self._acceptance(session.session_id)
        if not isinstance(recorded, RecordedText):
            return Continuation((), ())
        state = feed_all(start(session.opened.sampling.seed), session.tokens)
        proposal = recorded.proposal("own", len(session.tokens))
        return replayed(proposal, state, length, least_probability)


class RecordedTexts:
    """The texts of a world: each client has a domain of its own, whose texts come in turn; the seed orders both."""

    def __init__(
        self, models: Sequence[int], temperature: float, seed: int, recordings: str = "", domains: Sequence[str] = ()
    ) -> None:
        """models: of each client, by `Recordings.stand_in`. recordings: a file; empty: the shipped one. domains: of
        each client; none: by the seed."""
        known = proposals.load(recordings)
        texts = known.at(temperature)
        self.names = sorted({text.domain for text in texts})
        Random(seed).shuffle(self.names)
        self.names = list(domains) or self.names
        Random(seed).shuffle(texts)
        self._models = [known.stand_in(model) for model in models]
        self._off_path = {model: known.off_path(model, temperature) for model in set(self._models)}
        self._texts = [
            [text for text in texts if text.domain == name] for _, name in zip(models, cycle(self.names), strict=False)
        ]

    @property
    def rates(self) -> list[float]:
        """The draft model's acceptance in the domain of each client, one for each domain that there is."""
        found = [
            "".join(text.models[model].agreed for text in texts)
            for texts, model in zip(self._texts[: len(self.names)], self._models, strict=False)
        ]
        return [each.count("1") / len(each) for each in found]

    def text(self, client: int, number: int) -> Text:
        texts = self._texts[client]
        return texts[number % len(texts)]

    def __call__(self, client: int, number: int) -> RecordedText:
        model = self._models[client]
        texts = [self.text(client, number + place) for place in range(len(self._texts[client]))]
        return RecordedText(texts, model, self._off_path[model])
