"""Exact sampling and verification: logits to probabilities to tokens, and the two verification rules.

`rejection.py` has both rules, `sampling.py` the draws, `noise.py` (and `noise_at.py`, without torch) what they draw
with. `logits` holds what changes logits before, `proposals.py` and `proposal_bytes.py` the draft distributions of the
ratio rule, `trees.py` token trees as integers. All are pure functions of tensors (or token ids), seeds and positions.
Only `logits/token_counts.py` has state: it is updated as texts grow.
"""
