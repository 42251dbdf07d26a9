"""`goodspeed-fleet`: starts several verify nodes and watches over them; see docs/FLEET.md.

Starts light: Ray is imported when it is needed, and torch never.
"""

import argparse
import re
from collections.abc import Callable
from typing import TypeAlias

from goodspeed.app.fleet import others, up
from goodspeed.app.fleet.options import DEFAULT_NAME, NAME, WHAT_NAME
from goodspeed.command import running
from goodspeed.command.parser import CommandLine
from goodspeed.command.reporter import Reporter

PROGRAM = "goodspeed-fleet"
LEAVE_S = 30.0
"""How long `down` lets replicas leave by themselves."""

Body: TypeAlias = Callable[[argparse.Namespace, Reporter], int]


def main() -> int:
    reporter = Reporter(PROGRAM)
    return running.run(PROGRAM, build_parser(), lambda namespace: int(namespace.body(namespace, reporter)))


def build_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog=PROGRAM,
        description="Several verify nodes of one model: started with Ray, watched over, added and ended.",
        example="goodspeed-fleet up --model tiny-target --replicas 2",
        version=True,
    )
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    added = _add(chosen, "up", "start a fleet", up.__doc__, up.run, "--model tiny-target --replicas 2 -- --budget 28")
    up.add_arguments(added)
    added = _add(chosen, "status", "what each replica does", others.status.__doc__, others.status)
    _add_name(added)
    running.add_common_options(added)
    added = _add(chosen, "drain", "have a replica leave", others.drain.__doc__, others.drain, "replica-2")
    added.add_argument("replica", metavar="NAME", help="the replica's name, of `goodspeed-fleet status`")
    _add_name(added)
    added = _add(chosen, "scale", "have so many replicas", others.scale.__doc__, others.scale, "3")
    added.add_argument("number", type=int, metavar="N", help="replicas that there should be")
    _add_name(added)
    added = _add(chosen, "down", "end a fleet", others.down.__doc__, others.down)
    what = "replicas that have not left after so many seconds are killed (default: 30)"
    added.add_argument("--timeout-s", type=float, default=LEAVE_S, metavar="S", help=what)
    _add_name(added)
    return parser


def _add(
    chosen: "argparse._SubParsersAction[CommandLine]",
    name: str,
    help: str,
    text: str | None,
    body: Body,
    words: str = "",
) -> CommandLine:
    added = chosen.add_parser(name, help=help, description=text, example=f"{PROGRAM} {name} {words}".strip())
    added.set_defaults(body=body)
    return added


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default=DEFAULT_NAME, type=_name, help=f"{WHAT_NAME} (default: {DEFAULT_NAME})")


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a fleet")
    return text
