"""The parts of `OpenSession` that a user chooses: sampling, logit rules, a constraint and a service level."""

from typing import Annotated

from msgspec import Meta

from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import (
    MAX_BIASES,
    MAX_CONSTRAINT_CHARS,
    ConstraintKind,
    Message,
    MinP,
    RepetitionPenalty,
    Seconds,
    TokenId,
)


class Sampling(Message, frozen=True):
    """The choice of a session's next token from the logits.

    temperature 0 is greedy; top_k 0 and top_p 1.0 are off. `seed` keys the noise (`sampling.py`).
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class TokenBias(Message, frozen=True):
    """A number that is added to one token's logit."""

    token: TokenId
    bias: Annotated[float, Meta(ge=-100.0, le=100.0)]


class LogitRules(Message, frozen=True):
    """Changes to the logits before a token is chosen; each default changes nothing.

    presence_penalty and frequency_penalty look at the output alone, repetition_penalty at the prompt, too. min_p is
    the least probability that is kept, as a part of the largest one, after temperature.
    """

    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    min_p: MinP = 0.0
    logit_bias: Annotated[tuple[TokenBias, ...], Meta(max_length=MAX_BIASES)] = ()

    @property
    def reads_text(self) -> bool:
        """True if what they do depends on the text."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)


class Constraint(Message, frozen=True):
    """A constraint on the output.

    `source` is a JSON schema, a regular expression, a JSON list of texts (choice), a grammar in Lark's syntax, or empty
    for json_object. Tokens up to the first occurrence of `after` in the output are free: it ends what a model thinks.
    """

    kind: ConstraintKind
    source: Annotated[str, Meta(max_length=MAX_CONSTRAINT_CHARS)] = ""
    after: Annotated[tuple[TokenId, ...], Meta(max_length=16)] = ()


class Slo(Message, frozen=True):
    """The objectives of a text, and its age in seconds: both nodes' clocks differ, so no times travel."""

    objectives: Objectives
    waited_s: Seconds = 0.0  # since its user asked for it
    since_first_s: Seconds | None = None  # since its first token was there; None: it has none yet
