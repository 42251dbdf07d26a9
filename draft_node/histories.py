"""The texts that n-gram drafts come from: folders of documents, and the file that keeps texts that are over."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from goodspeed.errors import ConfigError, reason
from goodspeed.ngram import history_file
from goodspeed.ngram.history import History
from goodspeed.ngram.history_file import SavedHistory

SUFFIXES = frozenset(
    ".txt .md .rst .tex .html .xml .csv .tsv .json .jsonl .yaml .yml .toml .ini .cfg .log .sql .sh "
    ".py .pyi .ipynb .js .ts .jsx .tsx .css .c .h .cc .cpp .hpp .rs .go .java .kt .swift .rb .php .pl .lua .r".split()
)
"""Endings of files that hold text, in small letters."""

MAX_FILE_BYTES = 16 << 20
"""Larger files are left out: a tokenizer takes a hundred times their size in memory."""

PROGRESS_S = 5.0
"""A folder that takes longer is told of once in so many seconds."""

Report = Callable[..., None]
"""Takes a %-format and its values, as `Reporter.say` does."""


def read_corpus(folders: tuple[str, ...], tokenizer: Any, max_tokens: int, report: Report) -> Iterator[tuple[int, ...]]:
    """Yields the token ids of file after file, max_tokens in all at most; the last one may be cut.

    Tells of each folder how much it gave, in between too, and of each file that it leaves out why.
    """
    num_left = max_tokens
    tell_at = time.monotonic() + PROGRESS_S
    for folder in folders:
        num_files = num_tokens = 0
        for path in files(Path(folder)):
            if not num_left:
                report("--corpus %s: %d tokens are read, and the rest is left out", folder, max_tokens)
                break
            tokens = _encoded(path, tokenizer, report)[:num_left]
            num_left -= len(tokens)
            num_tokens += len(tokens)
            num_files += bool(tokens)
            if tokens:
                yield tokens
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + PROGRESS_S
                report("--corpus %s: %d tokens in %d files so far", folder, num_tokens, num_files)
        report("--corpus %s: %d tokens in %d files", folder, num_tokens, num_files)


def files(folder: Path) -> Iterator[Path]:
    """Yields the text files in a folder and its folders, in order of their names; links that lead out are left out."""
    root = os.path.realpath(folder)
    for place, folders, names in os.walk(root):  # does not follow links to folders
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.suffix.lower() in SUFFIXES and Path(os.path.realpath(path)).is_relative_to(root):
                yield path


def _encoded(path: Path, tokenizer: Any, report: Report) -> tuple[int, ...]:
    """Returns a file's token ids without special tokens around them; none for a file that cannot be read."""
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        report("--corpus: %s is left out: %s", path, reason(error) if isinstance(error, OSError) else error)
        return ()
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else ()


SAVE_S = 60.0
"""Seconds between saves of a history that has changed: so much is lost where a node is killed."""


class HistoryKeeper:
    """Saves a history in its file. The event loop copies the texts; a thread encodes and writes them."""

    def __init__(self, history: History, path: str, report: Report) -> None:
        """history: as the file has it."""
        self._history = history
        self._path = path
        self._report = report
        self._lock = threading.Lock()  # a write that is under way must not replace a later one
        self._num_saved = history.num_added
        self._has_failed = False

    async def run(self) -> None:
        """Saves now and then, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save()

    async def save(self) -> None:
        """Saves what has changed, if anything has."""
        if self._has_changed:
            await asyncio.to_thread(self._write, self._history.num_added, self._history.contents())

    def save_last(self) -> None:
        """Saves what has changed, and waits for the disk: the node stops."""
        if self._has_changed:
            self._write(self._history.num_added, self._history.contents())

    @property
    def _has_changed(self) -> bool:
        return self._history.num_added > self._num_saved

    def _write(self, number: int, contents: SavedHistory) -> None:
        """A failure is told once, until a write succeeds; later texts are worth more than this file."""
        with self._lock:
            if number <= self._num_saved:
                return
            try:
                history_file.write(self._path, history_file.encode(contents))
            except ConfigError as error:
                if not self._has_failed:
                    self._report("%s; until then texts are kept in memory only", error)
                self._has_failed = True
            else:
                self._num_saved, self._has_failed = number, False
