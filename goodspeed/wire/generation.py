"""The user's choices in `OpenSession`: sampling, logit rules, a constraint and a service level."""

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
    """Sampling parameters of a session.

    Temperature 0 is greedy; top_k 0 and top_p 1.0 are off. `seed` keys the noise (`goodspeed/exact/noise.py`).
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class TokenBias(Message, frozen=True):
    """A bias added to one token's logit."""

    token: TokenId
    bias: Annotated[float, Meta(ge=-100.0, le=100.0)]


class LogitRules(Message, frozen=True):
    """Changes to the logits before sampling; each default changes nothing.

    presence_penalty and frequency_penalty count tokens of the output; repetition_penalty counts the prompt's, too.
    min_p: tokens below this share of the highest probability, after temperature, are never drawn.
    """

    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    min_p: MinP = 0.0
    logit_bias: Annotated[tuple[TokenBias, ...], Meta(max_length=MAX_BIASES)] = ()

    @property
    def reads_text(self) -> bool:
        """True if the changes depend on the text's tokens."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)


class Constraint(Message, frozen=True):
    """A constraint on the output.

    source: a JSON schema, a regular expression, a JSON list of texts (choice), a grammar in Lark's syntax, or empty for
    json_object. after: tokens that end the model's thinking; output through their first occurrence is unconstrained.
    """

    kind: ConstraintKind
    source: Annotated[str, Meta(max_length=MAX_CONSTRAINT_CHARS)] = ""
    after: Annotated[tuple[TokenId, ...], Meta(max_length=16)] = ()


class Slo(Message, frozen=True):
    """A text's latency objectives and its age. Ages travel, not timestamps, because the nodes' clocks differ."""

    objectives: Objectives
    waited_s: Seconds = 0.0  # since the user's request
    since_first_s: Seconds | None = None  # since its first token; None: no token yet
