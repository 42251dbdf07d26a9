"""Public import path of the estimators, Eq. (3) and Eq. (4); see `goodspeed/fair/estimators.py`."""

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, expected_tokens

__all__ = ["AcceptanceEstimator", "GoodputEstimator", "expected_tokens"]
