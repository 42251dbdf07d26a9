"""The two verification rules over tensors, by the name that other programs import. The code is in `goodspeed/exact/rejection`."""

from goodspeed.exact.rejection import verify_match, verify_ratio

__all__ = ["verify_match", "verify_ratio"]
