"""Exact sampling and verification: logits to probabilities to tokens, and the two verification rules.

All are pure functions of tensors (or token ids), seeds and positions. Only `logits/token_counts.py` has state: it is
updated as texts grow.
"""
