"""Public import path of the two verification rules; see `goodspeed/exact/rejection.py`."""

from goodspeed.exact.rejection import match_tree, verify_match, verify_ratio

__all__ = ["match_tree", "verify_match", "verify_ratio"]
