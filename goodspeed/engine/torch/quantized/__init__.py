"""Checkpoints with linear weights stored in 4 bits (AWQ).

In float32 or float16 they become plain linear layers; in bfloat16 they stay in 4 bits (`int4_linear.py`).
"""
