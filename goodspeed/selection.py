"""Which drafted tokens are worth verifying, as other programs import it; see `goodspeed/fair/selection.py`."""

from goodspeed.fair.candidates import Candidate
from goodspeed.fair.selection import Selection, select

__all__ = ["Candidate", "Selection", "select"]
