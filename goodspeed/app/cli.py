"""The command line of `goodspeed`: its subcommands. The daemons are commands of their own.

Each subcommand is a file in this folder, or the file `command` of a room in it. torch is imported only after a
subcommand has checked its options.
"""

import argparse
from types import ModuleType

from goodspeed.app import generate, keygen, models, profile
from goodspeed.app.demo import command as demo
from goodspeed.errors import need
from goodspeed.serving import running
from goodspeed.serving.parser import CommandLine

SUBCOMMANDS: tuple[ModuleType, ...] = (demo, generate, keygen, models, profile)
"""Files with NAME, HELP, EXAMPLE, `add_arguments(parser)`, and `run(namespace)`, which returns the exit status or
raises a GoodSpeedError; the docstring is the description in the help."""

NEEDS: dict[ModuleType, tuple[str, ...]] = {
    demo: ("torch,app", "torch", "rich", "httpx2"),
    generate: ("torch", "torch"),
    profile: ("torch", "torch"),
}
"""Requirements of a subcommand: the extras to install, and their packages."""

SERVE = "`goodspeed-verify --model NAME` and `goodspeed-draft --model NAME --http HOST:PORT` serve, together"
HINTS = {
    **dict.fromkeys(("serve", "server", "api", "verify", "draft", "--host", "--port"), SERVE),
    "fleet": "`goodspeed-fleet` runs several verify nodes",
}


def main() -> int:
    return running.run("goodspeed", build_parser(), _run)


def _run(namespace: argparse.Namespace) -> int:
    """Runs a subcommand; NotInstalled if it needs a missing library of an extra."""
    subcommand: ModuleType = namespace.subcommand
    if subcommand in NEEDS:
        need(f"`goodspeed {subcommand.NAME}`", *NEEDS[subcommand])
    return int(subcommand.run(namespace))


def build_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="goodspeed",
        description="Fair, lossless speculative decoding between draft nodes at the edge and one verify node. The "
        "nodes are\n`goodspeed-verify` and `goodspeed-draft`; `goodspeed-fleet` runs several verify nodes.",
        example='goodspeed generate --prompt "def read_lines(path):" --max-tokens 40',
        version=True,
        hints=HINTS,
    )
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in SUBCOMMANDS:
        added = chosen.add_parser(
            subcommand.NAME, help=subcommand.HELP, description=subcommand.__doc__, example=subcommand.EXAMPLE
        )
        subcommand.add_arguments(added)
        added.set_defaults(subcommand=subcommand)
    return parser
