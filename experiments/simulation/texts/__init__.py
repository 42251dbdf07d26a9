"""The models of the simulated world: what the target writes, what is drafted, how often both agree."""
