"""Recordings: what draft models and n-gram indexes propose at every position of a target's texts, and what of it is
right.

Under the match rule a text is a function of target, prompt, temperature and seed, whoever drafts for it. So what an
index says after each of its tokens is found offline, and with it how many tokens of that are right; of a draft model,
whether its token agrees while all before it were right. `experiments/simulation/record.py` makes such a file,
`recorded.py` replays it. docs/SIMULATION.md has every field.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from goodspeed.drafting.confidence import AT_NO_CONFIDENCE
from goodspeed.errors import ConfigError, first_line, reason
from goodspeed.untrusted import read_bytes, sanitize
from goodspeed.wire.probabilities import PROBABILITIES

SHIPPED = Path(__file__).parent / "smollm2.jsonl.gz"

COMMAND = "python -m experiments.simulation.record"
VERSION = 2
MAX_BYTES = 1 << 28  # of a file, also of what was compressed
GZIP = b"\x1f\x8b"

DIGITS = "".join(
    [chr(number) for number in range(ord("!"), ord("~") + 1) if chr(number) not in '",/\\']
    + [chr(number) for number in range(0x100, 0x1A6)]
)
"""Codes of probabilities (`goodspeed.wire.probabilities`), a character each; likely ones take one byte in the file."""

_CODES = {digit: code for code, digit in enumerate(DIGITS)}

MOST = 8
"""Ranks are recorded up to this one, and a draft as long as this from its first wrong token on."""

Line = TypeVar("Line", bound=msgspec.Struct)

Source: TypeAlias = Literal["own", "history"]
"""An index of the text itself, or of that and of other texts of its domain."""


class Proposal(NamedTuple):
    """Tokens after one position: the code of each one's probabilities, and how many of them are the target's."""

    codes: bytes = b""
    num_right: int = 0


class OffPath(NamedTuple):
    """Rates at which a draft model is right where it is not known at which of the positions."""

    agreed: float  # share of a draft's tokens after its first wrong one that agree again
    second: float  # share of the wrong tokens where its second choice is right


class ModelPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A draft model along a text: its own token at every position, all before it being the target's."""

    ranks: Annotated[str, Meta(min_length=1, pattern=f"^[0-{MOST}]*$")]
    """The target's token among the draft model's choices: 1 if it is drafted, 0 if it is none of the first eight."""
    confidence: str  # codes of the probability, before temperature, of what is drafted
    p: str  # codes of what is drafted by the target, at the temperature
    q: str  # by the draft model, which drew it
    off_path: str
    """After some of the wrong tokens (`record.OFF_PATH_EVERY`) which of the next seven agree again: bits of a code."""

    @cached_property
    def agreed(self) -> str:
        """1 for each token that the target draws, too, else 0."""
        return "".join("1" if rank == "1" else "0" for rank in self.ranks)

    @cached_property
    def claims(self) -> list[float]:
        """The probabilities that a draft node claims of the tokens (`goodspeed.drafting.confidence`)."""
        return [AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * own for own in decode(read(self.confidence))]

    @cached_property
    def ratios(self) -> list[float]:
        """min(1, p/q) of each token, which Eq. (3) observes under the ratio rule."""
        pairs = zip(decode(read(self.p)), decode(read(self.q)), strict=True)
        return [min(1.0, p / q) for p, q in pairs]

    def agreed_again(self) -> list[str]:
        """The next seven tokens after some of the wrong ones: 1 for each that agrees, else 0."""
        return [f"{bits:0{MOST - 1}b}" for bits in read(self.off_path)]


class Title(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="proposals"):
    """The first line of a file."""

    version: int
    target: str
    draft_models: tuple[str, ...]  # the first two stand for a family's smaller and larger one
    max_tokens: int
    prompts: str = ""  # where they are from


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"):
    """One text of the target; positions count from the prompt's end."""

    domain: str
    temperature: float
    seed: int
    prompt_len: int
    own: str  # `joined` proposals of every position
    history: str
    models: dict[str, ModelPath]
    id: str = ""  # of the prompt
    ended: bool = False  # by itself, before it had max_tokens

    @property
    def num_tokens(self) -> int:
        return 1 + self.own.count(",")

    def proposals(self, source: Source) -> tuple[Proposal, ...]:
        """Returns the proposals of an index at every position."""
        return parted(self.own if source == "own" else self.history)

    def fault(self, draft_models: Sequence[str]) -> str:
        """Returns what is wrong with it, or nothing."""
        lengths = {"own": self.num_tokens, "history": 1 + self.history.count(",")}
        for name, path in self.models.items():
            lengths |= {f"{name}: ranks": len(path.ranks), f"{name}: confidence": len(path.confidence)}
            lengths |= {f"{name}: p": len(path.p), f"{name}: q": len(path.q)}
        if sorted(self.models) != sorted(draft_models):
            return f"it has the draft models {', '.join(sorted(self.models))} instead of the first line's"
        if len(set(lengths.values())) > 1:
            return "; ".join(f"{name} has {number} positions" for name, number in lengths.items())
        codes = [self.own, self.history]
        codes += [each for path in self.models.values() for each in (path.confidence, path.p, path.q, path.off_path)]
        unknown = set().union(*codes) - _CODES.keys() - {",", "/"}
        return f"{sorted(unknown)[0]!a} is no code of a probability" if unknown else ""


@dataclass(frozen=True, eq=False)
class Recordings:
    """The recorded texts of a file."""

    path: Path
    title: Title
    texts: tuple[Text, ...]

    def at(self, temperature: float) -> list[Text]:
        """Returns the texts of a temperature, of which there is one at least."""
        found = [text for text in self.texts if text.temperature == temperature]
        if not found:
            known = ", ".join(f"{each:g}" for each in sorted({text.temperature for text in self.texts}))
            raise ConfigError(f"{self.path} has no texts at temperature {temperature:g}, only at {known or 'none'}")
        return found

    def stand_in(self, number: int) -> str:
        """Returns the draft model of this number in the file, modulo how many there are: 0 and 1 stand for a family's
        smaller and larger one."""
        models = self.title.draft_models
        if not models:
            raise ConfigError(f"{self.path} has no draft model, only n-grams; record it again with --draft")
        return models[number % len(models)]

    def paths(self, draft_model: str) -> dict[str, tuple[str, ...]]:
        """Each domain's agreement at temperature 1: `agreed` of every text."""
        found: dict[str, tuple[str, ...]] = {}
        for text in self.at(1.0):
            found[text.domain] = (*found.get(text.domain, ()), text.models[draft_model].agreed)
        return found

    def off_path(self, draft_model: str, temperature: float) -> OffPath:
        """Means over all domains; 0 where the draft model was never wrong."""
        paths = [text.models[draft_model] for text in self.at(temperature)]
        bits = "".join(part for path in paths for part in path.agreed_again())
        wrong = "".join(path.ranks for path in paths).replace("1", "")
        return OffPath(bits.count("1") / max(1, len(bits)), wrong.count("2") / max(1, len(wrong)))


def written(codes: Iterable[int]) -> str:
    return "".join(map(DIGITS.__getitem__, codes))


def read(text: str) -> bytes:
    return bytes(map(_CODES.__getitem__, text))


def decode(codes: bytes) -> list[float]:
    """The probability that each code stands for."""
    return [PROBABILITIES[code] for code in codes]


def joined(proposals: Iterable[Proposal]) -> str:
    """Proposals in one line: a character for the probabilities of each token, a slash before the first that is
    wrong."""
    return ",".join(_line(written(codes), num_right) for codes, num_right in proposals)


def _line(codes: str, num_right: int) -> str:
    return codes if num_right == len(codes) else f"{codes[:num_right]}/{codes[num_right:]}"


@cache
def parted(line: str) -> tuple[Proposal, ...]:
    """The proposals of a line."""
    parts = (part.partition("/") for part in line.split(","))
    return tuple(Proposal(read(right + wrong), len(right)) for right, _, wrong in parts)


def save(title: Title, texts: Iterable[Text], path: str | Path) -> None:
    """Writes a file; the same content is the same file."""
    lines: list[msgspec.Struct] = [title, *texts]
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    Path(path).write_bytes(gzip.compress(data, mtime=0))


@cache
def load(path: str | Path = "") -> Recordings:
    """Loads a file, or the shipped one; ConfigError says what is wrong with it."""
    path = Path(path or SHIPPED)
    head, *rest = _lines(path)
    if (version := _decoded(head, _Version, path, 1).version) != VERSION:
        raise ConfigError(f"recording {path} has version {version}, but this program reads {VERSION}; record it again")
    title = _decoded(head, Title, path, 1)
    texts = [_decoded(line, Text, path, number) for number, line in enumerate(rest, 2)]
    for number, text in enumerate(texts, 2):
        if fault := text.fault(title.draft_models):
            raise ConfigError(f"recording {path} is damaged in line {number}: {sanitize(fault)}; record it again")
    if not texts:
        raise ConfigError(f"recording {path} has no texts; record it again")
    return Recordings(path, title, tuple(texts))


class _Version(msgspec.Struct):
    version: int


def _lines(path: Path) -> list[bytes]:
    """Returns the lines of a file, which gzip may have compressed; at least one."""
    try:
        data = read_bytes(path, MAX_BYTES)
        if data.startswith(GZIP):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES)
    except OSError as error:  # gzip's own is one
        raise ConfigError(f"recording {path} cannot be read: {reason(error)}; `{COMMAND}` makes one") from error
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"recording {path} is damaged: {first_line(error)}; record it again") from error
    return data.splitlines() or [b""]


def _decoded(line: bytes, kind: type[Line], path: Path, number: int) -> Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"recording {path} is damaged in line {number}: {sanitize(str(error))}; record it again"
        ) from error
