"""Nodes that benchmarks start: as processes of their own, or in this process with drafts made beforehand."""
