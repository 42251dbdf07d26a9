"""Reads and writes key files. Secrets are in files of mode 0600 only, never in a message, log line or repr.

Each file is a TOML table. A secret file (`NAME.key`) has `public_key`, `secret_key` and, for a draft node, `name`. A
verify node's public file (`NAME.pub`) has `public_key`; a draft node's public file is an `Enrolled`. Only a user's API
key (`NAME.api-key`) is a bare line.
"""

import logging
import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from goodspeed.errors import ConfigError
from goodspeed.files import others_can_read
from goodspeed.untrusted import read_bytes, sanitize
from goodspeed.wire.enrolled import Enrolled, Key, check_key
from goodspeed.wire.fields import Name

logger = logging.getLogger("goodspeed.keys")

MAX_BYTES = 4 << 10
"""Largest key file: parsing TOML takes time and memory quadratic in the number of dots, 4 s for 16 KiB."""

T = TypeVar("T")


class KeyPair(Struct, frozen=True, forbid_unknown_fields=True):
    """A node's own key pair."""

    public_key: Key
    secret_key: Key
    name: Name | None = None  # a draft node's

    def __post_init__(self) -> None:
        check_key(self.public_key)
        check_key(self.secret_key)

    def __repr__(self) -> str:
        return f"KeyPair(public_key={self.public_key!r}, name={self.name!r})"


class VerifyKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a verify node's public file."""

    public_key: Key

    def __post_init__(self) -> None:
        check_key(self.public_key)


def read_verify_pair(path: str) -> KeyPair:
    """Reads the verify node's key pair; ConfigError for any other file."""
    pair = _read_secret(path)
    if pair.name is not None:
        raise ConfigError(
            f"--key {path} is the key of the draft node {pair.name}; make one with `goodspeed keygen verify`"
        )
    return pair


def read_draft_pair(path: str) -> KeyPair:
    """Reads a draft node's key pair with its name; ConfigError for any other file."""
    pair = _read_secret(path)
    if pair.name is None:
        raise ConfigError(f"--key {path} is the key of a verify node; make one with `goodspeed keygen draft NAME`")
    return pair


def read_verify_key(path: str) -> VerifyKey:
    return _read(
        path, "--verify-key", VerifyKey, "give the public file (.pub) that `goodspeed keygen verify` made there"
    )


def read_enrolled(path: str | Path) -> Enrolled:
    """Reads a file of the enrolment folder; ConfigError explains a bad one."""
    return _read(path, "enrolled file", Enrolled, "give a public file (.pub) of `goodspeed keygen draft NAME`")


def _read_secret(path: str) -> KeyPair:
    pair = _read(path, "--key", KeyPair, "give a secret file (.key) that `goodspeed keygen` made")
    if others_can_read(path):
        logger.warning("other users can read a secret key; run chmod 600 on it", extra={"path": path})
    return pair


def _read(path: str | Path, what: str, kind: type[T], what_to_do: str) -> T:
    """Reads a table. Errors never quote the file, because it may hold a misplaced secret."""
    try:
        return msgspec.convert(tomllib.loads(read_bytes(path, MAX_BYTES).decode()), kind)
    except OSError as error:
        raise ConfigError(f"{what} {path}: cannot read it ({error.strerror}); {what_to_do}") from None
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"{what} {path}: {sanitize(str(error))}; {what_to_do}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        place = re.search(r"\(at line \d+, column \d+\)\Z", str(error))
        fault = f"it is not TOML {place[0]}" if place else "it is not a key file"
        raise ConfigError(f"{what} {path}: {fault}; {what_to_do}") from None


def write_secret(path: Path, pair: KeyPair) -> None:
    """Writes a new file, created with mode 0600."""
    whose = f"the draft node {pair.name}" if pair.name else "the verify node"
    table: dict[str, object] = {"public_key": pair.public_key, "secret_key": pair.secret_key}
    _write(
        path, _toml(f"SECRET key of {whose}: whoever has it can act as this node", {"name": pair.name} | table), 0o600
    )


def write_verify_key(path: Path, public_key: str) -> None:
    """Writes the verify node's public file, for draft nodes."""
    comment = "Public key of the verify node, for --verify-key of draft nodes"
    _write(path, _toml(comment, {"public_key": public_key}), 0o644)


def write_enrolled(path: Path, enrolled: Enrolled) -> None:
    """Writes a draft node's public file, for the verify node. Omits limits of None: the verify node's apply."""
    table = msgspec.structs.asdict(enrolled)
    _write(path, _toml(f"Public key of the draft node {enrolled.name}", table), 0o644)


def write_api_key(path: Path, key: str) -> None:
    """Writes a new file of --api-key with one user's key, created with mode 0600."""
    _write(path, [key], 0o600)


def _toml(comment: str, table: dict[str, object]) -> list[str]:
    """Returns a table as lines of TOML without escaping: names, keys and numbers need none."""
    rows = [f"{name} = {_value(value)}" for name, value in table.items() if value is not None]
    return [f"# {comment}. Made by `goodspeed keygen`.", *rows]


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _write(path: Path, lines: list[str], mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise ConfigError(f"{path} already exists; remove it, or write to another --folder") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            with suppress(OSError):  # a file system without modes
                os.fchmod(descriptor, mode)  # whatever the umask is
            file.write("\n".join([*lines, ""]))
    except OSError as error:
        path.unlink()
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
