"""`goodspeed verify`, `draft` and `fleet`: the commands of their own, under this command's name."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple


class Daemon(NamedTuple):
    """Another command, and the module whose `main` runs it."""

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
"""The module whose `Hosted` is a verify node on a thread of another process."""

SERVE = "`goodspeed verify --model NAME` and `goodspeed draft --model NAME --http HOST:PORT` serve, together"
HINTS = dict.fromkeys(("serve", "server", "api", "--host", "--port"), SERVE)


def run(name: str, words: Sequence[str]) -> int:
    """Runs a daemon's command in this process, which gets its signals; returns its exit status.

    No other Python is started: it would lack this one's options (`-I`, `-P`), and `-m` would import from the current
    folder.
    """
    daemon = DAEMONS[name]
    sys.argv = [daemon.command, *words]
    return int(import_module(daemon.module).main())
