"""A fleet: several verify nodes (replicas) of one target model, and where a session goes."""
