"""Reads recordings of runs: what `goodspeed-verify --json --record` printed (docs/SIMULATION.md)."""

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec

from goodspeed.errors import ConfigError, first_line, reason
from goodspeed.serving.measuring.recording import AnyLine, Opened, Round
from goodspeed.untrusted import read_bytes, sanitize

MAX_BYTES = 1 << 28  # also of what was compressed
GZIP = b"\x1f\x8b"
RECORD = "`goodspeed-verify --json --record`"


class Recording(msgspec.Struct, frozen=True):
    """The recording of one run, with its verify node's settings."""

    model: str
    policy: str
    rounds_kind: str
    budget: int
    sessions: tuple[Opened, ...]
    rounds: tuple[Round, ...]


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
    """Loads what `goodspeed-verify --json --record` printed; ConfigError states the problem and the line."""
    decoder, lines = msgspec.json.Decoder(_Event), list[AnyLine]()
    ready: _Ready | None = None
    for number, line in enumerate(_read(path), 1):
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
    sessions = tuple(line for line in lines if isinstance(line, Opened))
    rounds = tuple(line for line in lines if isinstance(line, Round))
    found = Recording(ready.model, ready.policy, ready.rounds, ready.budget, sessions, rounds)
    return _checked(found, path)


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


class _Version(msgspec.Struct):
    version: int


def read_lines(
    path: str | Path, first: type[msgspec.Struct], others: Any, version: int, *, made_by: str = RECORD
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


def _read(path: str | Path, made_by: str = RECORD) -> list[bytes]:
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
