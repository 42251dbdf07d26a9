"""Eq. (3) and Eq. (4), by the name that other programs import. The code is in `goodspeed/fair/estimators`."""

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator, expected_tokens

__all__ = ["AcceptanceEstimator", "GoodputEstimator", "expected_tokens"]
