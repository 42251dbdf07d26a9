"""Exact sampling and verification: logits to probabilities to tokens, and the two verification rules.

All functions are pure functions of tensors (or token ids), seeds and positions. Only `token_counts` has state: it is
updated as texts grow.
"""
