"""Drafts for a session's text, by the draft model and by n-grams."""
