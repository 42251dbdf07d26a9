"""Drafts of a session beyond its text, by its draft model and by n-grams."""
