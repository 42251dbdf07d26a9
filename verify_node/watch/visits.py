"""Status lines about draft nodes that connect, leave, or are refused. No I/O, no clock.

Reads the recent events of clients (`Diary` in `core/counts.py`), and remembers which refusals were reported.
"""

from goodspeed.serving.events import Sentence
from goodspeed.untrusted import sanitize
from verify_node.core.counts import Diary, DiaryEntry

NAMELESS = "(without a name)"


class Visits:
    """Reports the diary's new entries."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._num_told = diary.num_visits
        self._kept_out: set[tuple[str, str]] = set()  # clients and reasons that were reported, while the diary has them

    def news(self) -> list[Sentence]:
        """Returns status lines since the previous call; of very many entries, only the newest.

        A draft node that is refused repeatedly for the same reason is reported once.
        """
        visits = self._diary.visits_after(self._num_told)
        self._num_told = self._diary.num_visits
        refusals = {(entry.client, entry.why): entry for entry in self._diary.kept_out()}
        new = [entry for who, entry in refusals.items() if who not in self._kept_out]
        self._kept_out = set(refusals)
        return [_sentence(entry) for entry in (*new, *visits)]


def _sentence(entry: DiaryEntry) -> Sentence:
    name, what = entry.client or NAMELESS, sanitize(entry.what)
    match entry.kind:
        case "joined":
            return Sentence("draft node %s connected (%s)", (name, what))
        case "left":
            return Sentence("draft node %s left", (name,))
        case "lost":
            return Sentence("draft node %s is away", (name,))
        case "barred":
            return Sentence("draft node %s is barred: %s", (name, what))
        case "refused":
            return Sentence("draft node %s is refused (%s): %s", (name, what, sanitize(entry.why)))
