"""A conversation in the terminal over a draft node's HTTP API. Knows nothing about sessions or models.

Only rooms that say so import: httpx2, rich.
"""
