"""The file that preserves a history across restarts: private, atomically replaced, limited in size when read."""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from goodspeed import files
from goodspeed.errors import ConfigError, reason
from goodspeed.untrusted import read_bytes

VERSION = 1
MIN_FILE_BYTES = 64 << 20
"""Files up to this size are read whatever max_tokens is, since max_tokens may have been higher when writing."""

_Text = Annotated[bytes, Meta(max_length=1 << 30)]


class SavedUser(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A user's texts, oldest first, each as token ids of 4 bytes, little-endian."""

    name: Annotated[str, Meta(max_length=1024)]
    texts: list[_Text]


class SavedHistory(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The texts of all users, with the settings they depend on."""

    tokenizer: Annotated[str, Meta(max_length=1024)]  # fingerprint
    per_user: bool
    users: list[SavedUser]  # in order of each user's latest addition


class _File(msgspec.Struct, array_like=True, frozen=True, tag="goodspeed-history", forbid_unknown_fields=True):
    version: int
    digest: bytes  # of the contents
    contents: bytes  # a SavedHistory


def pack(text: array[int]) -> bytes:
    return _little(text).tobytes()


def unpack(packed: bytes) -> array[int]:
    return _little(array("i", packed))


def encode(saved: SavedHistory) -> bytes:
    contents = msgspec.msgpack.encode(saved)
    return msgspec.msgpack.encode(_File(VERSION, _digest(contents), contents))


def write(path: str | Path, saved: SavedHistory) -> None:
    """Atomically replaces the file by one of mode 0600, and waits for the disk. Raises ConfigError on failure."""
    try:
        files.write_whole(path, encode(saved), durable=True)
    except OSError as error:
        raise ConfigError(f"cannot write the history file {path}: {reason(error)}; give another path") from None


def read(path: str | Path, max_tokens: int) -> SavedHistory | None:
    """Returns the file's contents; None: no such file. Raises ConfigError for an unreadable or damaged file."""
    try:
        data = read_bytes(path, max(MIN_FILE_BYTES, 8 * max_tokens))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read the history file {path}: {reason(error)}; give another path") from None
    try:
        return _decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the history file {path} is damaged: {error}; delete it, or give another path") from None


def check(saved: SavedHistory, path: str | Path, tokenizer: str, per_user: bool) -> None:
    """Raises ConfigError for a file of another tokenizer, or written with another `per_user`."""
    if saved.tokenizer != tokenizer:
        what = "was written with another tokenizer, so its token ids do not fit"
    elif saved.per_user != per_user:
        what = f"keeps texts {'for each user alone' if saved.per_user else 'for all users together'}, unlike this node"
    else:
        return
    raise ConfigError(f"the history file {path} {what}; delete it, or give another path")


def _decode(data: bytes) -> SavedHistory:
    file = msgspec.msgpack.decode(data, type=_File)
    if file.version != VERSION:
        raise ValueError(f"it has version {file.version}, but this GoodSpeed reads version {VERSION}")
    if file.digest != _digest(file.contents):
        raise ValueError("its checksum is wrong")
    saved = msgspec.msgpack.decode(file.contents, type=SavedHistory)
    for user in saved.users:
        for text in user.texts:
            if len(text) % 4 or min(unpack(text), default=0) < 0:
                raise ValueError("a text has invalid token ids")
    return saved


def _digest(contents: bytes) -> bytes:
    return blake2b(contents, digest_size=16).digest()


def _little(text: array[int]) -> array[int]:
    if sys.byteorder == "big":
        text = text[:]
        text.byteswap()
    return text
