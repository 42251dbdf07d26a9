"""Lists the models that have names with their roles, or prints a model's folder or file."""

import argparse

from goodspeed.embedded import models

NAME = "models"
HELP = "list the models that have names, or print the folder or file of one"
EXAMPLE = "goodspeed models path tiny-target"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(name=None)
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.usage = "%(prog)s [-h] [COMMAND ...]"  # set late: the subcommand's usage begins with it
    path = chosen.add_parser("path", help="the checkpoint folder or the GGUF file of one model")
    path.add_argument("name", metavar="NAME", help=", ".join(models.ROLES))


def run(namespace: argparse.Namespace) -> int:
    if namespace.name is not None:
        print(models.path(namespace.name))
        return 0
    for name, role in models.ROLES.items():
        print(f"{name:<14} {role}")
    return 0
