"""Keeps the file of a history while a node runs, and when it stops. Knows nothing about sessions or users."""

import asyncio
import threading

from draft_node.text.corpus import Report
from goodspeed.errors import ConfigError
from goodspeed.ngram import history_file
from goodspeed.ngram.history import History
from goodspeed.ngram.history_file import SavedHistory

SAVE_S = 60.0
"""How often a history that has changed is saved: so much is lost where a node is killed."""


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
