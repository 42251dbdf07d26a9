"""Proposals of n-gram indexes and draft models at every position of real texts, and how far the target accepts them.

Under the match rule a text is a function of target, prompt, temperature and seed, whoever drafts for it. So what an
index says after each of its tokens is found offline, and with it how many tokens of that are right; of a draft model,
whether its token agrees while all before it were right. `record_proposals.py` makes the shipped file,
`recorded.py` replays it.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from goodspeed.serving.measuring import recording

SHIPPED = Path(__file__).parent / "proposals.jsonl"
"""Texts of all eight domains at temperatures 0 and 1, with both embedded draft models."""

VERSION = 1

DIGITS = "".join(chr(number) for number in range(ord("!"), ord("~") + 1) if chr(number) not in '",/\\')
"""Codes of probabilities (`goodspeed.wire.probabilities`), a character each; what is less likely than the last is
written as the last."""

RATE_OFF_PATH = 0.64
"""Share of a draft's tokens after its first wrong one that agree again: of 10,502 in two runs of `goodspeed demo
--preset paper --policy fixed --budget 192 --drafters model --max-tokens 150 --record FILE`."""

Source: TypeAlias = Literal["own", "history"]
"""An index of the text itself, or of that and of other texts of its domain."""


class Proposal(NamedTuple):
    """Tokens after one position: the code of each one's probabilities, and how many of them are the target's."""

    codes: bytes = b""
    num_right: int = 0


class ModelPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft model along a text: whether its token agrees, all before it being right, and the probability that it
    claims."""

    agreed: Annotated[str, Meta(min_length=1, pattern="^[01]*$")]
    probabilities: Annotated[str, Meta(min_length=1)]


class Title(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="proposals"):
    """The first line of a file."""

    version: int


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"):
    """One text of the target; positions count from the prompt's end."""

    domain: str
    temperature: float
    seed: int
    prompt_len: int
    own: str  # `joined` proposals of every position
    history: str
    models: dict[str, ModelPath]


def written(codes: Iterable[int]) -> str:
    return "".join(DIGITS[min(code, len(DIGITS) - 1)] for code in codes)


def read(text: str) -> bytes:
    return bytes(map(DIGITS.index, text))


def joined(proposals: Iterable[Proposal]) -> str:
    """Proposals in one line: a character for the probabilities of each token, a slash before the first that is
    wrong."""
    return ",".join(_line(written(codes), num_right) for codes, num_right in proposals)


def _line(codes: str, num_right: int) -> str:
    return codes if num_right == len(codes) else f"{codes[:num_right]}/{codes[num_right:]}"


@cache
def parted(line: str) -> tuple[Proposal, ...]:
    """The proposals of a line."""
    return tuple(_proposal(part) for part in line.split(","))


def _proposal(part: str) -> Proposal:
    right, _, wrong = part.partition("/")
    return Proposal(read(right + wrong), len(right))


def save(texts: Sequence[Text], path: str | Path) -> None:
    lines: list[msgspec.Struct] = [Title(VERSION), *texts]
    Path(path).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


@cache
def load(path: str | Path = SHIPPED) -> tuple[Text, ...]:
    """The texts in a file; ConfigError says what is wrong with it."""
    return tuple(recording.read_lines(path, Title, Text, VERSION)[1:])


@cache
def paths() -> dict[str, tuple[str, ...]]:
    """Returns each domain's agreement in the shipped texts at temperature 1: `agreed` of every text and draft model."""
    found: dict[str, tuple[str, ...]] = {}
    for text in load():
        if text.temperature == 1.0:
            found[text.domain] = (*found.get(text.domain, ()), *(path.agreed for path in text.models.values()))
    return found
