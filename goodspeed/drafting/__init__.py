"""Drafts for both nodes: sources, requests and answers, token trees, and a draft model with its KV caches."""
