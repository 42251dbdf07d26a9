"""What a session drafts beyond its text, by its draft model and by n-grams."""
