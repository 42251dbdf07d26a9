"""The embedded models as data: their names, their checkpoints, their model card, and held-out prompts for them.

`training` made them.
"""
