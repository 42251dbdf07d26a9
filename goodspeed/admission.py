"""Admission under this name, for programs that import it; it lies in `goodspeed/slo`."""

from goodspeed.slo.admit import admit, can_keep, names
from goodspeed.slo.feasible import Ask

__all__ = ["Ask", "admit", "can_keep", "names"]
