"""Models of a forward pass's duration, their fit to measured samples, and their refinement from real rounds.

`goodspeed/serving/profiler.py` does the measuring.
"""

from goodspeed.fair.latency.fit import fit_linear, fit_roofline, r_squared
from goodspeed.fair.latency.knee import knee
from goodspeed.fair.latency.models import CostModel, Linear, Roofline, Sample
from goodspeed.fair.latency.refined import Refined

__all__ = [
    "CostModel",
    "Linear",
    "Refined",
    "Roofline",
    "Sample",
    "fit_linear",
    "fit_roofline",
    "knee",
    "r_squared",
]
