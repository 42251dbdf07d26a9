"""Barrier rounds of many worlds at once, as arrays, and the best that any allocation can reach."""
