"""The two verification rules over tensors, as other programs import them; see `goodspeed/exact/rejection.py`."""

from goodspeed.exact.rejection import verify_match, verify_ratio

__all__ = ["verify_match", "verify_ratio"]
