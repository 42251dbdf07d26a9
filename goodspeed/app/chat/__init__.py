"""A conversation in the terminal with a draft node's HTTP face. Knows the API, and nothing of sessions or models."""
