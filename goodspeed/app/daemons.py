"""`goodspeed verify`, `draft` and `fleet`: the commands of their own, under this command's name."""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn


class Daemon(NamedTuple):
    """Another command, and the module that runs it."""

    command: str
    module: str
    help: str


DAEMONS = {
    "verify": Daemon("goodspeed-verify", "verify_node", "a verify node: runs the target model, for all draft nodes"),
    "draft": Daemon("goodspeed-draft", "draft_node", "a draft node: an OpenAI API for users, or prompts of a file"),
    "fleet": Daemon("goodspeed-fleet", "goodspeed.app.fleet", "several verify nodes, started and watched over"),
}

SERVE = "`goodspeed verify --model NAME` and `goodspeed draft --model NAME --http HOST:PORT` serve, together"
HINTS = dict.fromkeys(("serve", "server", "api", "--host", "--port"), SERVE)


def become(name: str, words: Sequence[str]) -> NoReturn:
    """Replaces this process by a daemon's, so that signals reach it and its exit status is this one's."""
    os.execv(sys.executable, [sys.executable, "-m", DAEMONS[name].module, *words])
