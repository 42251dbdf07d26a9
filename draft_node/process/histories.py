"""Sources of n-gram drafts on disk: folders of documents, and the file that stores ended texts."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from goodspeed import files
from goodspeed.errors import ConfigError, reason
from goodspeed.ngram import history_file
from goodspeed.ngram.history import History
from goodspeed.ngram.history_file import SavedHistory
from goodspeed.untrusted import sanitize

SUFFIXES = frozenset(
    ".txt .md .rst .tex .html .xml .csv .tsv .json .jsonl .yaml .yml .toml .ini .cfg .log .sql .sh "
    ".py .pyi .ipynb .js .ts .jsx .tsx .css .c .h .cc .cpp .hpp .rs .go .java .kt .swift .rb .php .pl .lua .r".split()
)
"""Suffixes of text files, in lower case."""

MAX_FILE_BYTES = 16 << 20
"""Larger files are skipped: a tokenizer takes a hundred times their size in memory."""

PROGRESS_S = 5.0
"""Seconds between progress reports while a folder is read."""

Report = Callable[..., None]
"""Takes a %-format and its values, like `Reporter.say`."""


def read_corpus(folders: tuple[str, ...], tokenizer: Any, max_tokens: int, report: Report) -> Iterator[tuple[int, ...]]:
    """Yields the token ids of each file, at most max_tokens in all; the final file may be truncated.

    Reports progress and totals of each folder, and the reason for each skipped file.
    """
    num_left = max_tokens
    tell_at = time.monotonic() + PROGRESS_S
    for folder in folders:
        num_files = num_tokens = 0
        for path in text_files(Path(folder), report):
            text = _text(path, report)
            whole = _encoded(text, tokenizer) if num_left else ()
            is_cut = len(whole) > num_left if num_left else bool(text)
            tokens = whole[:num_left]
            num_left -= len(tokens)
            num_tokens += len(tokens)
            num_files += bool(tokens)
            if tokens:
                yield tokens
            if is_cut:
                report("--corpus %s: %d tokens are read, and the rest is left out", folder, max_tokens)
                break
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + PROGRESS_S
                report("--corpus %s: %d tokens in %d files so far", folder, num_tokens, num_files)
        report("--corpus %s: %d tokens in %d files", folder, num_tokens, num_files)


def text_files(folder: Path, report: Report) -> Iterator[Path]:
    """Yields the text files in a folder and its subfolders, in order of name; skips links that lead outside."""

    def report_folder(error: OSError) -> None:
        report("--corpus: %s is left out: %s", sanitize(str(error.filename)), reason(error))

    root = os.path.realpath(folder)
    for place, folders, names in os.walk(root, onerror=report_folder):  # does not follow links to folders
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.suffix.lower() in SUFFIXES and Path(os.path.realpath(path)).is_relative_to(root):
                yield path


def _text(path: Path, report: Report) -> str:
    """Returns a file's text; empty for a file that cannot be read."""
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        why = reason(error) if isinstance(error, OSError) else error
        report("--corpus: %s is left out: %s", sanitize(str(path)), why)
        return ""


def _encoded(text: str, tokenizer: Any) -> tuple[int, ...]:
    """Returns a text's token ids without special tokens around them."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else ()


SAVE_S = 60.0
"""Seconds between saves of a changed history: a killed node loses at most this much."""


def hold(path: str) -> files.Lock:
    """Locks a history file by a file beside it, since it is replaced, and removes what killed nodes left there.

    ConfigError if another node has it: each would overwrite the other's texts.
    """
    beside = f"{os.path.realpath(path)}.lock"
    try:
        lock = files.Lock(beside)
    except BlockingIOError:
        raise ConfigError(
            f"--history-file {path}: another draft node uses it; give each node a file of its own"
        ) from None
    except OSError as error:
        raise ConfigError(f"--history-file: cannot lock {beside}: {reason(error)}; give another path") from None
    files.remove_abandoned(path)
    return lock


class HistoryKeeper:
    """Saves a history to its file. The event loop copies the texts; a thread encodes and writes them."""

    def __init__(self, history: History, path: str, report: Report, lock: files.Lock | None = None) -> None:
        """history: as loaded from the file. lock: of the file; `save_last` releases it."""
        self._held = lock
        self._history = history
        self._path = path
        self._report = report
        self._lock = threading.Lock()  # a write in progress must not replace a later one
        self._num_saved = history.num_added
        self._has_failed = False

    async def run(self) -> None:
        """Saves every SAVE_S, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save()

    async def save(self) -> None:
        """Saves the history if it has changed."""
        if self._has_changed:
            await asyncio.to_thread(self._write, self._history.num_added, self._history.contents())

    def save_last(self) -> None:
        """Saves a changed history when the node stops, waits for the disk, and releases the file."""
        try:
            if self._has_changed:
                self._write(self._history.num_added, self._history.contents())
        finally:
            if self._held is not None:
                self._held.release()

    @property
    def _has_changed(self) -> bool:
        return self._history.num_added > self._num_saved

    def _write(self, number: int, contents: SavedHistory) -> None:
        """Writes the file. Consecutive failures are reported once; the node continues without the file."""
        with self._lock:
            if number <= self._num_saved:
                return
            try:
                history_file.write(self._path, contents)
            except ConfigError as error:
                if not self._has_failed:
                    self._report("%s; until then texts are kept in memory only", error)
                self._has_failed = True
            else:
                self._num_saved, self._has_failed = number, False
