"""Recordings of runs as files: each session's drafts, the agreement at each position, and the times.

JSON lines: a header with the run's settings, then the sessions as they opened, then the rounds. `docs/SIMULATION.md`
says how to make one. It contains no text and no token ids.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from goodspeed.errors import ConfigError
from goodspeed.untrusted import read_bytes, sanitize
from goodspeed.wire.fields import Verification

VERSION = 2
MAX_BYTES = 1 << 28

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Agreed: TypeAlias = Annotated[str, Meta(pattern="^[01]*$")]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """Base of the types of lines."""


class Header(Line, frozen=True, kw_only=True, tag="recording"):
    """The first line."""

    version: int
    model: str
    policy: str
    rounds: str
    verification: Verification
    budget: int
    max_tokens: int
    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    clients: int
    versions: dict[str, str]  # of libraries


class Opened(Line, frozen=True, kw_only=True, tag="session"):
    """A session when it opened; `number` counts them from 0, in the order in which they opened."""

    number: Count
    client: str
    domain: str = ""
    draft_model: str
    seed: Count
    prompt_len: Count
    prompt_digest: str  # 64-bit hash of the prompt's tokens, in hexadecimal digits
    max_tokens: Count
    joined: Count  # rounds that had been started by then


class Drafted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A round's decision on one session; a session without a draft gets one token."""

    session: Count
    base_len: Count  # position of the first drafted token
    agreed: Agreed = ""  # of each drafted position: 1 where it would be accepted if all before were
    ratios: tuple[float, ...] = ()  # min(1, p/q) of each, under the ratio rule
    num_accepted: Count = 0
    num_tokens: Count  # delivered
    may_draft: Count = 0  # tokens beyond its text, from now on
    acceptance_rate: float = 0.0  # Eq. (3)'s estimate after this round
    goodput: float = 0.0  # Eq. (4)'s, of its client
    num_bytes: Count = 0  # of the draft on the wire
    answer_s: float = 0.0  # from the verdict before to this draft's arrival; 0 where it was there before
    finish_reason: str | None = None


class Round(Line, frozen=True, kw_only=True, tag="round"):
    """One round of the verify node."""

    number: Count
    started_s: float  # since the first session opened
    waited_s: float  # since the round before was done
    duration_s: float
    num_tokens: Count  # fed
    num_sessions: Count  # that were fed something
    context_tokens: Count  # cached before
    drafts: tuple[Drafted, ...]


AnyLine: TypeAlias = Opened | Round


class Recording(msgspec.Struct, frozen=True):
    """A run."""

    header: Header
    sessions: tuple[Opened, ...]
    rounds: tuple[Round, ...]


def save(recording: Recording, path: str) -> None:
    """Writes the file as a whole; ConfigError when it cannot be written."""
    lines: Sequence[Line] = (recording.header, *recording.sessions, *recording.rounds)
    try:
        Path(path).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    except OSError as error:
        raise ConfigError(
            f"the recording cannot be written to {path}: {error.strerror}; choose another place"
        ) from error


def load(path: str | Path) -> Recording:
    """Loads a recording; ConfigError says what is wrong with it, and in which line."""
    header, *lines = read_lines(path, Header, AnyLine, VERSION)
    sessions = tuple(line for line in lines if isinstance(line, Opened))
    rounds = tuple(line for line in lines if isinstance(line, Round))
    if [session.number for session in sessions] != list(range(len(sessions))):
        raise ConfigError(f"recording {path} is damaged: its sessions are not numbered from 0 on")
    for drafted in (drafted for done in rounds for drafted in done.drafts):
        if drafted.session >= len(sessions):
            raise ConfigError(f"recording {path} is damaged: nothing opens session {drafted.session}")
        if drafted.num_accepted > len(drafted.agreed) or len(drafted.ratios) not in (0, len(drafted.agreed)):
            raise ConfigError(f"recording {path} is damaged: a draft of session {drafted.session} does not add up")
    return Recording(header, sessions, rounds)


class _Version(msgspec.Struct):
    version: int


def read_lines(path: str | Path, first: type[msgspec.Struct], others: Any, version: int) -> list[Any]:
    """Reads a file's lines, the first of type `first`, with its version; ConfigError says what is wrong, and where."""
    try:
        data = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise ConfigError(
            f"recording {path} cannot be read: {error.strerror}; `goodspeed demo --record` makes one"
        ) from error
    head, *rest = data.splitlines() or [b""]
    found = _decode(head, msgspec.json.Decoder(_Version), path, 1).version
    if found != version:
        raise ConfigError(f"recording {path} has version {found}, and this program reads {version}; record it again")
    decoder = msgspec.json.Decoder(others)
    lines = [_decode(line, decoder, path, number) for number, line in enumerate(rest, 2)]
    return [_decode(head, msgspec.json.Decoder(first), path, 1), *lines]


def _decode(line: bytes, decoder: msgspec.json.Decoder[Any], path: str | Path, number: int) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"recording {path} is damaged in line {number}: {sanitize(str(error))}; record it again"
        ) from error
