"""Benchmarks, one module each with a `main`; `python -m experiments.benchmarks` runs them all."""
