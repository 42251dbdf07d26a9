"""Public import path of the selection of drafted tokens to verify; see `goodspeed/fair/selection.py`."""

from goodspeed.fair.selection import Candidate, Selection, select

__all__ = ["Candidate", "Selection", "select"]
