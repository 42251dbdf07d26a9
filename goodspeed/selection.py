"""Which drafted tokens are worth verifying, as other programs import it; see `goodspeed/fair/selection.py`."""

from goodspeed.fair.selection import Candidate, Selection, select

__all__ = ["Candidate", "Selection", "select"]
