"""The user's choices in `OpenSession`: sampling, logit rules, a constraint and a service level."""

from typing import Annotated

from msgspec import Meta

from goodspeed.exact.parameters import LogitRules as LogitRules
from goodspeed.exact.parameters import Sampling as Sampling
from goodspeed.exact.parameters import TokenBias as TokenBias
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.fields import MAX_CONSTRAINT_CHARS, ConstraintKind, Message, Seconds, TokenId


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
