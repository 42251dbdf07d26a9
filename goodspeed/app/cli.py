"""`goodspeed`: a chat, the demo, one model alone, keys, models, a profile. Each subcommand is a file in `subcommands/`.

Starts light: nothing here imports torch before a subcommand has its options and needs it.
"""

import argparse
from typing import Protocol

from goodspeed.app.subcommands import chat, demo, generate, keygen, models, profile
from goodspeed.command import running
from goodspeed.command.parser import CommandLine


class Subcommand(Protocol):
    """Interface of a file of `subcommands/`; its docstring is the description in the help."""

    __doc__: str | None

    @property
    def NAME(self) -> str: ...  # noqa: N802 (a constant of a module)

    @property
    def HELP(self) -> str: ...  # noqa: N802

    @property
    def EXAMPLE(self) -> str: ...  # noqa: N802

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, namespace: argparse.Namespace) -> int:
        """Runs the subcommand; returns the exit status. A GoodSpeedError becomes one line on standard error."""
        ...


SUBCOMMANDS: tuple[Subcommand, ...] = (chat, demo, generate, keygen, models, profile)


def main() -> int:
    return running.run("goodspeed", build_parser(), lambda namespace: int(namespace.body(namespace)))


def build_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="goodspeed",
        description="Fair, lossless speculative decoding between draft nodes at the edge and one verify node.",
        example='goodspeed generate --prompt "def read_lines(path):" --max-tokens 40',
        version=True,
    )
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in SUBCOMMANDS:
        added = chosen.add_parser(
            subcommand.NAME, help=subcommand.HELP, description=subcommand.__doc__, example=subcommand.EXAMPLE
        )
        subcommand.add_arguments(added)
        added.set_defaults(body=subcommand.run)
    return parser
