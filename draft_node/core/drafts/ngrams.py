"""n-gram drafts at a draft node: which texts may draft for a request, and where texts go that are over. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from draft_node.core.actions import Request
from goodspeed.ngram.drafting import Continuation, draft
from goodspeed.ngram.history import History
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.wire.messages import Sampling

LEAST_PROBABILITY = 0.3
"""Drafts end where the probability that all of it is accepted falls below this one. Measured on the embedded models'
texts: with 0.3 a round brings 2.24 tokens for 1.6 drafted ones at temperature 0, with histories."""

FLOOR = 0.03
"""No draft goes on below this probability, however little a token costs the verify node: it would be mostly noise."""

LEAD = 32
"""Tokens of the prompt before a prediction: as many as a match may be long."""

LIKELIEST = Sampling(temperature=0.0)


@dataclass(slots=True)
class Ngrams:
    """The histories of a node, for all of its sessions."""

    history: History
    keeps: bool = True  # texts that are over draft for later ones of their user
    least_probability: float = LEAST_PROBABILITY
    expected: "WeakValueDictionary[tuple[int, ...], NgramIndex]" = field(default_factory=WeakValueDictionary)
    """Indexes of predictions, as long as one of their texts is written: a request's choices share one."""

    def begin(self, request: Request) -> "NgramDrafter | None":
        """Returns the drafter of this request; None where its user wants no n-gram drafts."""
        if request.drafter not in ("auto", "ngram") or not request.max_draft:
            return None
        return NgramDrafter(request, self.history, self.least_probability, self._predicted(request))

    def keep(self, request: Request, tokens: Sequence[int]) -> None:
        """Adds a text that is over, prompt included, to its user's history; one without a single token is left out."""
        if self.keeps and len(tokens) > len(request.prompt):
            self.history.add(request.user, tokens)

    def _predicted(self, request: Request) -> NgramIndex | None:
        """Returns the user's prediction of the text; None under the ratio rule.

        It is a text that drafts for this request alone. The user may have it from an answer to the same request, which
        is not independent of the noise that decides here. It follows the end of the prompt, so that its beginning is
        drafted at once.
        """
        if not request.prediction or request.verification != "match":
            return None
        text = (*request.prompt[-LEAD:], *request.prediction)
        index = self.expected.get(text)
        if index is None:
            index = NgramIndex(len(text))
            index.add(text)
            self.expected[text] = index
        return index


@dataclass(slots=True)
class NgramDrafter:
    """Drafts for one session from its own text, and from what its user may see of the history."""

    request: Request
    history: History
    least_probability: float = LEAST_PROBABILITY
    prediction: NgramIndex | None = None  # of what is expected of this text
    _text: GrowingText = field(default_factory=GrowingText)

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        """At most `length` tokens that may follow the text `tokens`, none of which ends it.

        least_probability: the verify node's, which knows what a token costs; 0 where it tells none: the node's own
        count. Where a draft ends depends on the text so far and the index alone, never on whether its tokens are
        accepted: so under the ratio rule, too, the text stays exact.
        """
        request = self.request
        self._text.follow(tokens)
        room = len(request.prompt) + request.max_tokens - len(tokens) - 1  # the round itself brings the last token
        expected = draft(
            self._text,
            self._histories,
            max(0, min(length, room)),
            sampling=request.sampling if request.verification == "match" else LIKELIEST,
            least_probability=max(least_probability, FLOOR) if least_probability else self.least_probability,
            banned=request.banned_at(len(tokens)),
        )
        return _before_end(expected, request.stop_ids)

    @property
    def _histories(self) -> list[NgramIndex]:
        """Under the ratio rule nothing that was written before drafts, but for shared texts.

        The target's noise follows from seed, round and position. A user may give one seed to two requests; drafts from
        the first text would then not be independent of the noise that decides on the second one.
        """
        if self.request.verification == "match":
            expected = [self.prediction] if self.prediction is not None else []
            return expected + self.history.indexes(self.request.user)
        return self.history.shared


def _before_end(expected: Continuation, stop_ids: Sequence[int]) -> Continuation:
    """Returns the tokens before the text's end, which the target draws in the same round, drafted or not."""
    for at, token in enumerate(expected.tokens):
        if token in stop_ids:
            return Continuation(expected.tokens[:at], expected.probabilities[:at])
    return expected
