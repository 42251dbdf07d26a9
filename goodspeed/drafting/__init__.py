"""Drafts of models, for both nodes: requests and answers, token trees, KV caches, one forward pass for all texts."""
