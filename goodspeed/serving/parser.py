"""The parser of all command lines: one-line errors with a hint, and help that ends with an example."""

import argparse
import difflib
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from goodspeed import __version__
from goodspeed.serving.starting import STATUSES, USAGE

WIDTH = 100


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Returns a formatter of at most WIDTH columns, with short options and their help on one line."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=27, width=width)


class CommandLine(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors."""

    def __init__(
        self,
        *,
        example: str | None = None,
        version: bool = False,
        hints: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """example: shown at the end of the help, before the exit statuses. hints: advice by unknown word."""
        self._hints = hints or {}
        parts = [f"example:\n  {example}"] if example else []
        options.setdefault("epilog", "\n\n".join([*parts, STATUSES]))
        super().__init__(formatter_class=_formatter, **options)
        if version:
            self.add_argument("--version", action="version", version=f"{self.prog} {__version__}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses like argparse, including subcommands, but reports an unknown word as an error at once."""
        words = list(sys.argv[1:] if args is None else args)
        if unknown := self._unknown_option(words):  # first: a missing option may be mistyped
            known = [option.removeprefix("--") for option in self._option_string_actions]  # dashes are no likeness
            near = difflib.get_close_matches(unknown.removeprefix("--"), known, n=1, cutoff=0.7)
            self.error(f"unknown option {unknown}" + (f"; did you mean --{near[0]}?" if near else ""))
        namespace, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"unknown word {rest[0]!r}")
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Prints one line on standard error and exits with status 2."""
        hints = [hint for word, hint in self._hints.items() if word in re.findall(r"[\w-]+", message)]
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            near = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]), n=1)
            hints += [f"did you mean {word}?" for word in near]
        told = "; ".join([message.removeprefix("argument "), *hints[:1]])
        self.exit(USAGE, f"{self.prog}: {told}{'' if told.endswith('?') else '.'} See {self.prog} --help\n")

    def _unknown_option(self, words: Sequence[str]) -> str | None:
        """Returns the first unknown long option before a subcommand, or None; a prefix of a known option is known."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return None
            name = word.partition("=")[0]
            known = self._option_string_actions
            if re.fullmatch(r"--[\w-]+", name) and not any(one.startswith(name) for one in known):
                return name
        return None
