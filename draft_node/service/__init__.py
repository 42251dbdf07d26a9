"""Generates texts for a draft node's users: encodes prompts, opens sessions and turns tokens into pieces of text.

HTTP and `--prompts` use this package.
"""
