"""Counters and metrics of both nodes, times of forward passes, and recordings of runs."""
