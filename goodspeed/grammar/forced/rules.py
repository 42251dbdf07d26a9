"""The longest run that a grammar's text may be forced to have, by its rules. What is not understood is unbounded."""

import re
from collections.abc import Mapping

from goodspeed.grammar.forced.runs import (
    ENDLESS,
    NOTHING,
    UNBOUNDED,
    Run,
    broken,
    fixed,
    one_of,
    optional,
    sequence,
    times,
)
from goodspeed.grammar.repeats import longest_way

MAX_DEPTH = 64
"""Rules and parentheses in each other; what is deeper is unbounded."""


ANY_TEXT = frozenset((r"/(.|\n)*/", "/.*/"))
"""Regular expressions that leave a choice wherever they stand."""

_HEAD = re.compile(r"^[?!]?(\w+)(?:\[\w+\])?[ \t]*:", re.MULTILINE)
_PART = re.compile(
    r"""\s*(?: (?P<comment>//[^\n]*|\#[^\n]*) | (?P<string>"(?:\\.|[^"\\\n])*"i?)
    | (?P<regex>/(?:\\.|[^/\\\n])+/[imslu]*)
    | (?P<special><[^<>\s]*>) | (?P<name>\w+) | (?P<op>[()\[\]|*+?]) | \{\s*(?P<count>\d{1,9})\s*(?:,\s*\d*\s*)?\} )""",
    re.VERBOSE,
)


def of_rules(source: str, known: Mapping[str, Run]) -> Run:
    """Returns the run of a grammar in Lark's syntax; known: those of rules that are told apart."""
    heads = list(_HEAD.finditer(source))
    if not heads:
        return NOTHING
    if source[: heads[0].start()].strip() or "%ignore" in source:
        return UNBOUNDED
    ends = [*(each.start() for each in heads[1:]), len(source)]
    rules = _Rules(known)
    for head, end in zip(heads, ends, strict=True):
        parts = _parts(source[head.end() : end])
        if parts is None:
            return UNBOUNDED
        rules.bodies[head[1]] = parts
    return rules.run("start", ())


def _parts(body: str) -> list[tuple[str, str]] | None:
    """Returns a body's parts by kind; None where one is not known."""
    found, at, body = list[tuple[str, str]](), 0, body.rstrip()
    while at < len(body):
        part = _PART.match(body, at)
        if part is None or part.lastgroup is None:
            return None
        at = part.end()
        if part.lastgroup != "comment":
            found.append((part.lastgroup, part[part.lastgroup]))
    return found


class _Rules:
    def __init__(self, known: Mapping[str, Run]) -> None:
        self.bodies: dict[str, list[tuple[str, str]]] = {}
        self._known = dict(known)

    def run(self, name: str, path: tuple[str, ...]) -> Run:
        """Returns the run of a rule; path: of rules that led here."""
        if name in self._known:
            return self._known[name]
        if name in path:
            return ENDLESS
        if len(path) >= MAX_DEPTH or name not in self.bodies:
            return UNBOUNDED
        found = _Body(self, self.bodies[name], (*path, name)).run()
        self._known[name] = found._replace(is_endless=False)  # it may be so on this path only
        return found


class _Body:
    """Reads one rule from its first part to its last."""

    def __init__(self, rules: _Rules, parts: list[tuple[str, str]], path: tuple[str, ...]) -> None:
        self._rules, self._path = rules, path
        self._left = parts[::-1]

    def run(self, depth: int = 0) -> Run:
        """Returns the run up to where a group ends."""
        choices: list[list[Run]] = [[]]
        while self._left:
            kind, text = self._left.pop()
            newest = choices[-1]
            if text in (")", "]"):
                break
            if text == "|":
                choices.append([])
            elif kind in ("op", "count") and text not in ("(", "["):
                newest[-1:] = [_repeated(kind, text, each) for each in newest[-1:]]
            else:
                newest.append(self._one(kind, text, depth))
        return one_of(map(sequence, choices))

    def _one(self, kind: str, text: str, depth: int) -> Run:
        if kind == "op":
            if depth >= MAX_DEPTH:
                self._left.clear()
                return UNBOUNDED
            inner = self.run(depth + 1)
            return inner if text == "(" else optional(inner)
        if kind == "regex":
            return broken(0) if text in ANY_TEXT else fixed(4 * longest_way(text))
        return self._rules.run(text, self._path) if kind == "name" else fixed(len(text.encode()))


def _repeated(kind: str, text: str, part: Run) -> Run:
    if kind == "count":
        return sequence((times(part, int(text)), optional(part)))
    return sequence((part, optional(part))) if text == "+" else optional(part)
