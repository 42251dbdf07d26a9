"""The draft model: its thread, drafting, early ends of drafts, KV caches, and a circuit breaker for failures."""
