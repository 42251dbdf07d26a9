"""What a text is owed in the next round, and how long that may last: Eqs. (2), (3) of AdaServe, Alg. 3 of AdaSpec.

A text with a TPOT is on time while it has a token for every `tpot_s` since its first one. Knows nothing about who is
served with what.
"""

from typing import NamedTuple


class Standing(NamedTuple):
    """How a text stands against its TPOT."""

    tpot_s: float
    decoding_s: float  # l, since its first token
    num_decoded: int  # o, tokens after that one

    @property
    def left_s(self) -> float:
        """How long the next round may take if it brings the text one token: TPOT (o + 1) - l, in seconds."""
        return self.tpot_s * (self.num_decoded + 1) - self.decoding_s


T_SPEC_FACTOR = 1.05
"""By so much the next round may be longer than the last was, as in the code of AdaServe's authors."""


def owed_tokens(tpot_s: float, decoding_s: float, num_decoded: int, round_s: float) -> float:
    """Tokens that the next round has to bring for the text to be on time when it ends: A(r) = (l + t) / TPOT - o.

    decoding_s: l, since its first token; num_decoded: o, tokens after that one; round_s: t, how long a round takes.
    Every round brings one token, so below 1 nothing has to be drafted. It may be negative: the text is ahead.
    """
    return (decoding_s + T_SPEC_FACTOR * round_s) / tpot_s - num_decoded
