"""Data of the embedded models: names, checkpoints, model card and held-out prompts."""
