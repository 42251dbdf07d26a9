"""Runs `goodspeed verify`, `draft` and `fleet`, short names of separate commands."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple


class Daemon(NamedTuple):
    """A separate command. module: its `main` runs the command."""

    command: str
    module: str
    help: str


DAEMONS = {
    "verify": Daemon(
        "goodspeed-verify", "verify_node.cli", "a verify node: runs the target model, for all draft nodes"
    ),
    "draft": Daemon("goodspeed-draft", "draft_node.cli", "a draft node: an OpenAI API for users, or prompts of a file"),
    "fleet": Daemon("goodspeed-fleet", "goodspeed.app.fleet.cli", "several verify nodes, started and watched over"),
}

HOSTING = "verify_node.hosting"
"""Module whose `Hosted` runs a verify node on a thread of another process."""

SERVE = "`goodspeed verify --model NAME` and `goodspeed draft --model NAME --http HOST:PORT` serve, together"
HINTS = dict.fromkeys(("serve", "server", "api", "--host", "--port"), SERVE)


def run(name: str, words: Sequence[str]) -> int:
    """Runs a daemon's command in this process, so that signals reach it; returns the exit status.

    A second Python process would lack this process's options (`-I`, `-P`), and `-m` would import from the current
    folder.
    """
    daemon = DAEMONS[name]
    sys.argv = [daemon.command, *words]
    return int(import_module(daemon.module).main())
