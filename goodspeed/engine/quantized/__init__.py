"""Checkpoints whose linear weights are stored in 4 bits (AWQ) or 8 bits (fp8, compressed-tensors).

Loaded in float32 or float16 they become plain linear layers; in bfloat16 those of 4 bits stay so (`int4_linear.py`).
"""
