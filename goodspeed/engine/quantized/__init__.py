"""Checkpoints whose linear weights are stored in 4 or 8 bits: what their configuration says, and how they are read.

Loaded in float32 or float16 they become plain linear layers; in bfloat16 those of 4 bits stay so (`int4_linear.py`).
Knows nothing about sessions, tokenizers or the wire.

Imports nothing of: goodspeed.engine.paged, goodspeed.engine.runner, goodspeed.engine.tokenizing.
"""
