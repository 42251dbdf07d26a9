"""A fleet: several verify nodes (replicas) of one target model, and the choice of a session's replica."""
