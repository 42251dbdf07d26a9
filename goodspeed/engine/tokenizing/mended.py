"""Corrects what libraries cannot read in a checkpoint's JSON files, in copies beside links to all other files.

A process makes one copy of a folder, and removes it at its end. A killed process leaves it to the next that makes one.
"""

import codecs
import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TypeAlias

PREFIX = "goodspeed-checkpoint-"

Files: TypeAlias = dict[str, bytes | Path]
"""A copy's files by name: corrected texts, and what links lead to."""

_KEPT: dict[tuple[Path, frozenset[tuple[str, bytes | Path]]], TemporaryDirectory[str]] = {}  # until the process ends


def mended(folder: Path) -> Path:
    """Returns a folder whose JSON files can be read: the folder itself, or a copy that links to its other files.

    Some editors begin a text with a byte order mark, which JSON does not have. Some programs leave an empty
    `quantization_config` in config.json, which means that there is none.
    """
    corrected = {
        path.name: text for path in folder.glob("*.json") if path.is_file() and (text := _corrected(path)) is not None
    }
    if not corrected:
        return folder
    files: Files = {path.name: corrected.get(path.name, path.resolve()) for path in folder.iterdir()}
    inner = Path(folder.parent.name, folder.name)  # the names tell a hub snapshot's revision
    key = folder.absolute(), frozenset(files.items())
    if key not in _KEPT:
        _remove_abandoned()
        _KEPT.setdefault(key, _copied(files, inner))
    return _KEPT[key].name / inner


def _copied(files: Files, inner: Path) -> TemporaryDirectory[str]:
    """Makes the folder `inner` with these files in a temporary one, which is locked until the process ends."""
    place = TemporaryDirectory(prefix=PREFIX)
    with suppress(OSError):  # without locks on this file system, nobody else finds it abandoned either
        fcntl.flock(_opened(place.name), fcntl.LOCK_EX)
    (copy := place.name / inner).mkdir(parents=True, exist_ok=True)
    for name, source in files.items():
        if isinstance(source, bytes):
            (copy / name).write_bytes(source)
        else:
            (copy / name).symlink_to(source)
    return place


def _remove_abandoned() -> None:
    """Removes this user's copies that no process has locked. An empty one may be about to be locked."""
    for place in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is in use or another user's, or was just removed
            descriptor = _opened(place)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid() and any(place.iterdir()):
                    shutil.rmtree(place)
            finally:
                os.close(descriptor)


def _opened(folder: str | Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _corrected(path: Path) -> bytes | None:
    """Returns the corrected text of a file; None: it needs no correction, or is beyond it."""
    with path.open("rb") as file:
        has_mark = file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
    text = path.read_bytes().removeprefix(codecs.BOM_UTF8) if has_mark or path.name == "config.json" else b""
    if path.name == "config.json":
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):  # whoever reads it next says so
            return text if has_mark else None
        if isinstance(config, dict) and not config.get("quantization_config", True):
            del config["quantization_config"]
            return json.dumps(config).encode()
    return text if has_mark else None
