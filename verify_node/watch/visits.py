"""Status lines about draft nodes that connect, leave, or are refused. No I/O, no clock.

Reads the diary, which is bounded, and remembers the clients reported as away, to report their return.
"""

from goodspeed.serving.events import Sentence
from goodspeed.untrusted import sanitize
from verify_node.core.counts import MAX_VISITS, Diary, DiaryEntry

NAMELESS = "(without a name)"

AGAIN_S = 600.0
"""Seconds between two reports of a draft node that is refused repeatedly for the same reason."""


class Visits:
    """Reports the diary's new entries."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._num_told = diary.num_visits
        self._away: dict[str, None] = {}  # names, the newest last
        self._kept_out: dict[tuple[str, str], float] = {}  # time of the latest report, by client and reason

    def news(self) -> list[Sentence]:
        """Returns status lines since the previous call; of very many entries, only the newest."""
        entries = self._diary.visits_after(self._num_told)
        self._num_told = self._diary.num_visits
        return [*self._refusals(), *map(self._sentence, entries)]

    def _refusals(self) -> list[Sentence]:
        found = []
        before, self._kept_out = self._kept_out, {}  # drops what the diary dropped
        for entry in self._diary.kept_out():
            who = (entry.client, entry.why)
            told_at = before.get(who)
            if told_at is None or entry.at - told_at >= AGAIN_S:
                told_at = entry.at
                values = (entry.client or NAMELESS, entry.what, sanitize(entry.why))
                found.append(Sentence("draft node %s is refused (%s): %s", values))
            self._kept_out[who] = told_at
        return found

    def _sentence(self, entry: DiaryEntry) -> Sentence:
        name, what = entry.client or NAMELESS, sanitize(entry.what)
        was_away = name in self._away
        self._away.pop(name, None)
        match entry.kind:
            case "joined":
                return Sentence(
                    "draft node %s is back (%s)" if was_away else "draft node %s connected (%s)", (name, what)
                )
            case "left":
                return Sentence("draft node %s left", (name,))
            case "barred":
                return Sentence("draft node %s is barred: %s", (name, what))
            case _:
                self._away[name] = None
                if len(self._away) > MAX_VISITS:
                    del self._away[next(iter(self._away))]
                return Sentence("draft node %s is away", (name,))
