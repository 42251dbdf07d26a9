"""Status lines about draft nodes that connect and leave. No I/O, no clock.

Reads the diary, which is bounded, and remembers clients that it reported away, to report their return.
"""

from goodspeed.command.reporter import Sentence
from goodspeed.untrusted import sanitize
from verify_node.core.diary import MAX_VISITS, Diary, Entry


class Visits:
    """Reports the diary's new entries."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._num_told = diary.num_visits
        self._away: dict[str, None] = {}  # names, the newest last

    def news(self) -> list[Sentence]:
        """Returns status lines since the last call; of very many entries only the newest."""
        entries = self._diary.visits_after(self._num_told)
        self._num_told = self._diary.num_visits
        return [self._sentence(entry) for entry in entries]

    def _sentence(self, entry: Entry) -> Sentence:
        name, what = entry.client or "(without a name)", sanitize(entry.what)
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
