"""Parameters that change logits, or name tokens that end a text: their ranges, and what they are to the nodes.

Ids of tokens are checked here against the vocabulary; `goodspeed.exact.logit_rules` says what the rules do.
"""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.fields import Strict, TokenId
from goodspeed.wire.fields import MAX_BIASES, MAX_STOP_IDS
from goodspeed.wire.generation import TokenBias

MAX_BIAS = 100.0

_TOKEN_ID = re.compile(r"(0|[1-9][0-9]{0,9})\Z")


def _by_token(given: object) -> object:
    """Counts members before each is looked at, and wants ids in the one way that JSON writes a number."""
    if not isinstance(given, dict):
        return given
    if len(given) > MAX_BIASES:
        raise ValueError(f"must have at most {MAX_BIASES} members")
    if not all(isinstance(key, str) and _TOKEN_ID.match(key) for key in given):
        raise ValueError('must have token ids as its names, like {"50256": -100}')
    return given


Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
LogitBias: TypeAlias = Annotated[
    dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
    Field(max_length=MAX_BIASES),
    BeforeValidator(_by_token),
]


class RuleParameters(Strict):
    """What changes logits before a token is drawn, and what ends a text by its token."""

    presence_penalty: Penalty | None = Field(default=None, description="taken from each token that the output has")
    frequency_penalty: Penalty | None = Field(
        default=None, description="taken from each token for each time that the output has it"
    )
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = Field(
        default=None, description="divides (multiplies below 0) logits of what prompt or output have; 1 is off"
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="least probability, as a part of the largest one, after temperature; 0 is off"
    )
    logit_bias: LogitBias | None = Field(default=None, description="token ids with what is added to their logits")
    stop_token_ids: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_STOP_IDS)] | None = Field(
        default=None, description="tokens that end the text, also with ignore_eos"
    )


def biases(request: RuleParameters, vocab_size: int) -> tuple[TokenBias, ...]:
    """What is added to which token's logit; ApiError for an id outside the vocabulary, if its size is known (not 0)."""
    given = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    _check_ids(given, "logit_bias", vocab_size)
    return tuple(TokenBias(token, float(bias)) for token, bias in sorted(given.items()) if bias)


def stop_token_ids(request: RuleParameters, vocab_size: int, eos_ids: Collection[int]) -> tuple[int, ...]:
    """The request's tokens that end the text; ApiError for one outside the vocabulary, if its size is known (not 0).

    eos_ids: those that end it as well. ApiError too where they are too many together.
    """
    given = tuple(dict.fromkeys(request.stop_token_ids or ()))
    _check_ids(given, "stop_token_ids", vocab_size)
    num_own = len({*eos_ids, *given}) - len(given)
    if len(given) + num_own > MAX_STOP_IDS:
        what = f"stop_token_ids: {len(given)} beside {num_own} of the target's own are too many"
        ask = f"send at most {MAX_STOP_IDS - num_own}, or ignore_eos"
        raise ApiError(400, f"{what}; {ask}", param="stop_token_ids")
    return given


def _check_ids(tokens: Iterable[int], param: str, vocab_size: int) -> None:
    most = max(tokens, default=0)
    if vocab_size and most >= vocab_size:
        what = f"{param}: {most} is no token id; they go from 0 to {vocab_size - 1}"
        raise ApiError(400, what, param=param, code="vocabulary")
