"""Data of the embedded models: names, checkpoints, model card and held-out prompts.

`training` produced the checkpoints and chose the prompts.
"""
