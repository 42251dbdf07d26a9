"""Loads of benchmarks: texts, when they are asked for, and the ways of writing them."""
