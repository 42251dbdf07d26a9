"""The draft node: drafts tokens with a small model or n-grams, and streams the tokens that the verify node commits."""
