"""n-gram drafts at a draft node: the texts that may draft for a request, and the history of ended texts. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.generation import Generation
from goodspeed.drafting.proposing import banned_at
from goodspeed.drafting.sources import NGRAM, permits
from goodspeed.ngram.drafting import Continuation, draft
from goodspeed.ngram.history import History
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.wire.messages import Sampling
from goodspeed.wire.probabilities import FLOOR

DEFAULT_LEAST_PROBABILITY = 0.3
"""A draft ends where the probability that all of it is accepted falls below this, while the verify node has given no
least probability. Measured on the embedded models' texts, at temperature 0 with histories: with 0.3 a round yields 2.24
tokens for 1.6 drafted ones."""

LIKELIEST = Sampling(temperature=0.0)


@dataclass(slots=True)
class Ngrams:
    """The histories of a node, for all of its sessions."""

    history: History
    keeps: bool = True  # ended texts draft for later ones of their user
    least_probability: float = DEFAULT_LEAST_PROBABILITY

    def begin(self, request: Generation) -> "NgramDrafter | None":
        """Returns the drafter of this request; None if the request permits no n-gram drafts."""
        if not permits(request.drafter, NGRAM) or not request.max_draft:
            return None
        return NgramDrafter(request, self.history, self.least_probability)

    def keep(self, request: Generation, tokens: Sequence[int]) -> None:
        """Adds an ended text, complete or not, with its prompt to its user's history, unless no token was generated."""
        if self.keeps and len(tokens) > len(request.prompt):
            self.history.add(request.user, tokens)


@dataclass(slots=True)
class NgramDrafter:
    """Drafts for one session from its own text, and from the history that its user may see."""

    request: Generation
    history: History
    least_probability: float = DEFAULT_LEAST_PROBABILITY
    vocab_size: int = 1 << 31  # of the target: drafted ids are below it
    _text: GrowingText = field(default_factory=GrowingText)

    def draft(self, tokens: Sequence[int], length: int, least_probability: float = 0.0) -> Continuation:
        """Returns a draft of at most `length` tokens after the text `tokens`, without stop ids.

        least_probability: the verify node's least path probability, from a token's cost; 0: unknown, the draft node's
        own applies. A draft's length depends on the text and the index only, never on whether its tokens are accepted.
        This keeps the text exact under the ratio rule.
        """
        request = self.request
        self._text.follow(tokens)
        room = len(request.prompt) + request.max_tokens - len(tokens) - 1  # the round itself adds the target's token
        return draft(
            self._text,
            self._histories,
            max(0, min(length, room)),
            sampling=request.sampling if request.verification == "match" else LIKELIEST,
            least_probability=self.bound(least_probability),
            banned=banned_at(request, len(tokens)),
            stop_ids=request.stop_ids,
            vocab_size=self.vocab_size,
        )

    def bound(self, least_probability: float) -> float:
        """Returns the path probability at which a draft ends, given the verify node's bound; 0: it gave none."""
        return max(least_probability, FLOOR) if least_probability else self.least_probability

    @property
    def _histories(self) -> list[NgramIndex]:
        """Indexes that draft for this request; under the ratio rule only the text itself does.

        The target's noise follows from seed, round and position. A user may give one seed to two requests. Drafts from
        the first text would then depend on the same noise that verifies the second text.
        """
        if self.request.verification != "match":
            return []
        return self.history.indexes(self.request.user)
