"""Lists the embedded models with their roles, or prints a model's folder."""

import argparse

from goodspeed.embedded import models

NAME = "models"
HELP = "list the embedded models, or print the folder of one"
EXAMPLE = "goodspeed models path tiny-target"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(name=None)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.usage = "%(prog)s [-h] [COMMAND ...]"  # set late: the subcommand's usage begins with it
    path = chosen.add_parser("path", help="the checkpoint folder of one model")
    path.add_argument("name", metavar="NAME", help=", ".join(models.NAMES))


def run(namespace: argparse.Namespace) -> int:
    if namespace.name is not None:
        print(models.path(namespace.name))
        return 0
    for name, role in models.ROLES.items():
        print(f"{name:<14} {role}")
    return 0
