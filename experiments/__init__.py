"""Measurements: benchmarks, and the real cores on a virtual clock. May import everything; nothing imports it."""
