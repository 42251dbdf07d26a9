"""Public import path of admission; see `goodspeed/slo/admit.py`."""

from goodspeed.slo.admit import admit, can_keep, names
from goodspeed.slo.feasible import Ask

__all__ = ["Ask", "admit", "can_keep", "names"]
