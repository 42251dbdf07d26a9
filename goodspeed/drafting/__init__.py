"""Drafts for both nodes: what drafts, requests and answers, token trees, and a draft model with its KV caches."""
