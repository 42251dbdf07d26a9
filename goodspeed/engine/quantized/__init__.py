"""Checkpoints with linear weights stored in 4 bits (AWQ) or 8 bits (fp8, compressed-tensors).

In float32 or float16 they become plain linear layers; in bfloat16 weights of 4 bits stay in 4 bits (`int4_linear.py`).
"""
