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

CHOICES = re.compile(r"argument (?P<what>[^:]+): invalid choice: (?P<given>.*) \(choose from (?P<known>.*)\)", re.S)
MISSING = re.compile(r"the following arguments are required: (?P<what>.*)", re.S)
NO_VALUE = re.compile(r"argument (?P<what>[^:]+): expected one argument")
WIDTH = 100
OTHER = re.compile(r"argument (?P<what>[^:]+): (?P<why>.*)", re.S)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats the help in at most WIDTH columns, with short options and their help on one line."""

    def __init__(self, prog: str) -> None:
        width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
        super().__init__(prog, max_help_position=27, width=width)


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
        super().__init__(formatter_class=HelpFormatter, **options)
        if version:
            self.add_argument("--version", action="version", version=f"{self.prog} {__version__}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses like argparse, including subcommands, but reports an unknown word as an error at once."""
        words = list(sys.argv[1:] if args is None else args)
        if unknown := self._unknown_option(words):  # first: a missing option may be mistyped
            self.error(self._advice("option", unknown, self._options))
        namespace, rest = super().parse_known_args(words, namespace)
        if rest and not rest[0].startswith("-"):
            self.error(f"unexpected word {rest[0]!r}")
        if rest:
            self.error(self._advice("option", rest[0].partition("=")[0], self._options))
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Prints one line on standard error and exits with status 2."""
        told = self._in_our_words(message)
        self.exit(USAGE, f"{self.prog}: {told}{'' if told.endswith('?') else '.'} See {self.prog} --help\n")

    def _unknown_option(self, words: Sequence[str]) -> str | None:
        """Returns the first unknown long option before a subcommand, or None; a prefix of a known option is known."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return None
            name = word.partition("=")[0]
            if re.fullmatch(r"--[\w-]+", name) and not any(known.startswith(name) for known in self._options):
                return name
        return None

    def _in_our_words(self, message: str) -> str:
        """Rewrites argparse's message in the style of this project's errors."""
        if found := CHOICES.fullmatch(message):
            known = re.findall(r"[^\s,']+", found["known"])
            kind = found["what"].lower() if found["what"].isupper() else found["what"]
            return self._advice(kind, found["given"].strip("'"), known, all_of_them=True)
        if found := MISSING.fullmatch(message):
            *others, last = found["what"].split(", ")
            what = f"{', '.join(others)} and {last} are" if others else f"{last} is"
            return f"{what} missing" + (f"; choose one of: {', '.join(self._commands)}" if self._commands else "")
        if found := NO_VALUE.fullmatch(message):
            return f"{found['what']} needs a value"
        found = OTHER.fullmatch(message)
        return f"{found['what']}: {found['why']}" if found else message

    def _advice(self, kind: str, given: str, known: list[str], *, all_of_them: bool = False) -> str:
        """Returns the message for an unknown word, with a hint or the nearest known word.

        all_of_them: lists all known words if none is near.
        """
        text = f"unknown {kind} {given if given.startswith('-') else repr(given)}"
        if given in self._hints:
            return f"{text}; {self._hints[given]}"
        if near := difflib.get_close_matches(given, known, n=1):
            return f"{text}; did you mean {near[0]}?"
        return f"{text}; choose one of: {', '.join(known)}" if all_of_them else text

    @property
    def _commands(self) -> list[str]:
        groups = self._subparsers._group_actions if self._subparsers is not None else ()
        return [name for group in groups for name in group.choices or ()]

    @property
    def _options(self) -> list[str]:
        return list(self._option_string_actions)
