"""The draw of the match rule, by the name that other programs import. The code is in `goodspeed/exact/sampling`."""

from goodspeed.exact.sampling import Role, Sampling, SamplingBatch, choose, draw, sample, to_probs, uniform

__all__ = ["Role", "Sampling", "SamplingBatch", "choose", "draw", "sample", "to_probs", "uniform"]
