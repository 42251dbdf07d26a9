"""Threads for what is too large for the event loop: bodies that are read, and answers that are written.

Each kind has a thread of its own and is done one piece at a time, with users in turn (`fair_queue.py`). So
neither waits for the other, nor for a tokenizer. Knows nothing about what is read or written.
"""

import sys

from draft_node.text.fair_queue import FairQueue

MAX_BYTES = 1 << 26
"""The most bytes of one user's large bodies that wait to be read: 16 bodies of 4 MiB."""

TOO_MUCH = "your earlier requests still wait to be read; wait for their answers, then ask again"

NO_BOUND = sys.maxsize
"""No bound on one user's answers that wait: their texts were let in and are complete, so none is refused now."""


class LargeWork:
    """Lasts as long as the application that uses it."""

    def __init__(self) -> None:
        self.bodies = FairQueue(MAX_BYTES, TOO_MUCH, "bodies")  # sized in bytes
        self.answers = FairQueue(NO_BOUND, "", "answers")

    def close(self) -> None:
        """Ends the threads; who still waits is cancelled."""
        self.bodies.close()
        self.answers.close()
