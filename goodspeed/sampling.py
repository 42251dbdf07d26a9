"""Public import path of sampling under the match rule; see `goodspeed/exact/sampling.py`."""

from goodspeed.exact.sampling import Role, Sampling, SamplingBatch, choose, draw, sample, to_probs, uniform

__all__ = ["Role", "Sampling", "SamplingBatch", "choose", "draw", "sample", "to_probs", "uniform"]
