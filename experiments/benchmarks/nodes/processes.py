"""Starts daemons for benchmarks."""

import sys

START_S = 120.0
"""The longest that a daemon may take to be ready."""


def command(module: str, *options: str) -> list[str]:
    """A daemon that tells its events."""
    return [sys.executable, "-m", module, *options, "--json", "--log-level=error"]
