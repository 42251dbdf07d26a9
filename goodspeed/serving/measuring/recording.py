"""Loads recordings of runs: drafts, the target's agreement at each drafted position, and times.

What `goodspeed-verify --json --record` prints is a recording. So are JSON lines without events around them: a header
with the run's settings, the sessions in the order in which they opened, then the rounds. A recording contains no text
and no token ids. `docs/SIMULATION.md` explains how to make one.
"""

import gzip
import importlib.metadata
import io
import os
import platform
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from goodspeed import __version__
from goodspeed.errors import ConfigError, first_line, reason
from goodspeed.untrusted import read_bytes, sanitize
from goodspeed.wire.fields import Verification

VERSION = 2
MAX_BYTES = 1 << 28  # also of what was compressed
GZIP = b"\x1f\x8b"
DEMO = "`goodspeed-verify --json --record`"

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Agreed: TypeAlias = Annotated[str, Meta(pattern="^[01]*$")]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """Base of all lines."""


class Header(Line, frozen=True, kw_only=True, tag="recording"):
    """The first line: the run's settings. None: sessions differ in it, or none has it."""

    version: int
    model: str
    policy: str
    rounds: str
    verification: Verification | None
    budget: int
    max_tokens: int | None
    temperature: float | None
    top_k: int | None = 0
    top_p: float | None = 1.0
    clients: int
    versions: dict[str, str]  # of libraries


class Opened(Line, frozen=True, kw_only=True, tag="session"):
    """A session when it opened. number: from 0, in the order of opening."""

    number: Count
    client: str
    domain: str = ""
    draft_model: str
    seed: Count
    prompt_len: Count
    prompt_digest: str  # 64-bit hash of the prompt's tokens, in hexadecimal digits
    max_tokens: Count
    joined: Count  # rounds started before
    verification: Verification | None = None  # of these four, None: the header's
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None


class Drafted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A round's result for one session; a session without a draft gets one token."""

    session: Count
    base_len: Count  # position of the first drafted token
    agreed: Agreed = ""  # per drafted position: 1 if accepted provided that all before are
    ratios: tuple[float, ...] = ()  # min(1, p/q) per position, under the ratio rule
    num_accepted: Count = 0
    num_tokens: Count  # committed
    may_draft: Count = 0  # permission after this round, in tokens
    acceptance_rate: float = 0.0  # Eq. (3)'s estimate after this round
    goodput: float = 0.0  # Eq. (4)'s estimate, of its client
    num_bytes: Count = 0  # the draft's bytes on the wire
    answer_s: float = 0.0  # from the previous verdict to this draft's arrival; 0 if it arrived before
    finish_reason: str | None = None


class Round(Line, frozen=True, kw_only=True, tag="round"):
    """One round of the verify node."""

    number: Count
    started_s: float  # since the first session opened
    waited_s: float  # since the end of the previous round
    duration_s: float
    num_tokens: Count  # fed to the target
    num_sessions: Count  # with tokens in the batch
    context_tokens: Count  # cached before the round
    drafts: tuple[Drafted, ...]


AnyLine: TypeAlias = Opened | Round


class Recording(msgspec.Struct, frozen=True):
    """The recording of one run."""

    header: Header
    sessions: tuple[Opened, ...]
    rounds: tuple[Round, ...]


def versions() -> dict[str, str]:
    """Returns the versions of this program and of what computes its results."""
    libraries = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    return {"goodspeed": __version__, "python": platform.python_version(), **libraries}


def check(path: str) -> None:
    """Raises ConfigError if a recording cannot be written there; changes nothing."""
    try:
        real = Path(os.path.realpath(path))  # of a link to no file, the file that would be made
        is_new = not real.exists()
        real.open("ab").close()
        if is_new:
            real.unlink()
    except OSError as error:
        raise ConfigError(
            f"the recording cannot be written to {path}: {error.strerror}; choose another place"
        ) from error


def load(path: str | Path) -> Recording:
    """Loads what `goodspeed-verify --json --record` printed, or the same without events around it.

    ConfigError states the problem and the line.
    """
    head, *rest = _read(path)
    if _decode(head, msgspec.json.Decoder(_Kind), path, 1).event is not None:
        return _checked(_of_events(path, [head, *rest]), path)
    header, *lines = read_lines(path, Header, AnyLine, VERSION)
    return _checked(_of_lines(header, lines), path)


def _of_lines(header: Header, lines: Sequence[AnyLine]) -> Recording:
    sessions = tuple(line for line in lines if isinstance(line, Opened))
    rounds = tuple(line for line in lines if isinstance(line, Round))
    return Recording(header, sessions, rounds)


def _of_events(path: str | Path, events: Sequence[bytes]) -> Recording:
    """Makes the recording of a verify node's events; its settings come from the `ready` event and the sessions."""
    decoder, lines = msgspec.json.Decoder(_Event), list[AnyLine]()
    ready: _Ready | None = None
    for number, line in enumerate(events, 1):
        event = _decode(line, decoder, path, number)
        if event.event == "ready" and ready is not None:
            raise ConfigError(f"recording {path} has a second run from line {number} on; give each a file of its own")
        if event.event == "ready":
            ready = _decode(line, msgspec.json.Decoder(_Ready), path, number)
        if event.event == "dropped":
            what = "the verify node dropped lines that nobody read; write to a file"
            raise ConfigError(f"recording {path} has a gap in line {number}: {what}, and record it again")
        if event.line is not None:
            lines.append(event.line)
    if ready is None or not lines:
        raise ConfigError(f"recording {path} has no run with `recorded` events; give goodspeed-verify --json --record")
    opened = [line for line in lines if isinstance(line, Opened)]
    return _of_lines(ready.header(opened), lines)


def _checked(recording: Recording, path: str | Path) -> Recording:
    sessions, rounds = recording.sessions, recording.rounds
    if [session.number for session in sessions] != list(range(len(sessions))):
        raise ConfigError(f"recording {path} is damaged: its sessions are not numbered from 0 on")
    for drafted in (drafted for done in rounds for drafted in done.drafts):
        if drafted.session >= len(sessions):
            raise ConfigError(f"recording {path} is damaged: nothing opens session {drafted.session}")
        if drafted.num_accepted > len(drafted.agreed) or len(drafted.ratios) not in (0, len(drafted.agreed)):
            raise ConfigError(f"recording {path} is damaged: a draft of session {drafted.session} does not add up")
    return recording


class _Version(msgspec.Struct):
    version: int


class _Kind(msgspec.Struct):
    event: str | None = None


class _Event(msgspec.Struct):
    """An event of a verify node, as far as a recording needs it."""

    event: str
    line: AnyLine | None = None  # of `recorded`


class _Ready(msgspec.Struct):
    """The first event of a verify node."""

    model: str
    policy: str
    rounds: str
    budget: int
    versions: dict[str, str] = {}  # msgspec copies it

    def header(self, sessions: Sequence[Opened]) -> Header:
        """Returns the settings of a run with these sessions."""

        def shared(name: str) -> Any:
            found = {getattr(session, name) for session in sessions}
            return found.pop() if len(found) == 1 else None

        names = ("verification", "max_tokens", "temperature", "top_k", "top_p")
        own = {name: getattr(self, name) for name in self.__struct_fields__}
        clients = len({session.client for session in sessions})
        return Header(version=VERSION, clients=clients, **own, **{name: shared(name) for name in names})


def read_lines(
    path: str | Path, first: type[msgspec.Struct], others: Any, version: int, *, made_by: str = DEMO
) -> list[Any]:
    """Reads a file's lines: the first as `first`, of this version, the rest as `others`. ConfigError for bad lines.

    made_by: the command that makes such files.
    """
    head, *rest = _read(path, made_by)
    found = _decode(head, msgspec.json.Decoder(_Version), path, 1).version
    if found != version:
        raise ConfigError(f"recording {path} has version {found}, but this program reads {version}; record it again")
    decoder = msgspec.json.Decoder(others)
    lines = [_decode(line, decoder, path, number) for number, line in enumerate(rest, 2)]
    return [_decode(head, msgspec.json.Decoder(first), path, 1), *lines]


def _read(path: str | Path, made_by: str = DEMO) -> list[bytes]:
    """Returns the lines of a file, which gzip may have compressed; at least one."""
    try:
        data = read_bytes(path, MAX_BYTES)
        if data.startswith(GZIP):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES)
    except OSError as error:  # gzip's own is one
        raise ConfigError(f"recording {path} cannot be read: {reason(error)}; {made_by} makes one") from error
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"recording {path} is damaged: {first_line(error)}; record it again") from error
    return data.splitlines() or [b""]


def _decode(line: bytes, decoder: msgspec.json.Decoder[Any], path: str | Path, number: int) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"recording {path} is damaged in line {number}: {sanitize(str(error))}; record it again"
        ) from error
