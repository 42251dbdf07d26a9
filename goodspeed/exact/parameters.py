"""The parameters that decide a draw: sampling and changes to the logits. Plain values, which travel as they are."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

MAX_BIASES = 1024
"""Most tokens whose logits a session may bias."""

TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
RepetitionPenalty: TypeAlias = Annotated[float, Meta(ge=0.01, le=100.0)]
MinP: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]


class Sampling(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Sampling parameters of a session.

    Temperature 0 is greedy; top_k 0 and top_p 1.0 are off. `seed` keys the noise (`sampling.py`).
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class TokenBias(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A bias added to one token's logit."""

    token: TokenId
    bias: Annotated[float, Meta(ge=-100.0, le=100.0)]


class LogitRules(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
