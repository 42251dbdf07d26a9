"""The verify node's state has one writer: the methods of the classes that hold it, in the room where these lie.

Found are assignments, deletions and calls that change a container or an estimator, through any name but `self`. What
cannot be seen in this way are writes through a local name for a container.
"""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from verify_node.clients.client import Client, Peer
from verify_node.scheduler.attained_service import Account
from verify_node.session.deadline import Deadline
from verify_node.session.draft_state import DraftState
from verify_node.session.draft_timer import DraftTimer
from verify_node.session.session import Session

ROOT = Path(__file__).parents[2]
FILES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "verify_node").rglob("*.py"))]


def fields_of(*owners: Any) -> set[str]:
    return {field.name for owner in owners for field in fields(owner)}


OWNED = {
    "verify_node/clients": fields_of(Client, Peer) - {"client"} - fields_of(Session),
    "verify_node/session": fields_of(Session, DraftState, DraftTimer, Deadline) - {"at"},
    "verify_node/scheduler": fields_of(Account),
    "verify_node/core": {"refusals", "num_rounds", "round_s", "wake_at", "draining"},
}
CHANGING = {
    *("append", "appendleft", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("reverse", "rotate", "setdefault", "sort", "subtract", "update", "observe"),
}
CHANGED_BY_EACH_CALL = {"timer"}


def writes(tree: ast.AST, names: set[str]) -> list[str]:
    """The places, as source, at which one of these attributes is written through another name than `self`."""
    return [ast.unparse(target) for target in _targets(tree) if _reaches(target, names)]


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete):
            yield from (part for target in node.targets for part in _parts(target))
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr):
            yield from _parts(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from _parts(node.optional_vars)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _changes(node.func):
            yield node.func.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "delattr", "object.__setattr__"}:
            yield ast.Attribute(node.args[0], ast.literal_eval(node.args[1]), ast.Store())


def _changes(method: ast.Attribute) -> bool:
    owner = method.value
    return method.attr in CHANGING or (isinstance(owner, ast.Attribute) and owner.attr in CHANGED_BY_EACH_CALL)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _parts(part)
    elif isinstance(target, ast.Starred):
        yield from _parts(target.value)
    else:
        yield target


def _reaches(target: ast.expr, names: set[str]) -> bool:
    """True if what is written is one of the attributes of another object, or something within."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        inner = target.value
        if isinstance(target, ast.Attribute) and target.attr in names:
            return not (isinstance(inner, ast.Name) and inner.id == "self")
        target = inner
    return False


@pytest.mark.parametrize("file", FILES)
def test_only_its_own_room_writes_the_state(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"), filename=file)
    owned = [names for room, names in OWNED.items() if not file.startswith(f"{room}/")]
    assert not [place for names in owned for place in writes(tree, names)]


@pytest.mark.parametrize(
    "source",
    [
        "session.may_draft = 3",
        "known.may_draft, other = 3, 4",
        "session.num_repeats += 1",
        "del session.drafts.newest",
        "session.tokens[0] = 1",
        "del move.session.logprobs[:2]",
        "session.sent.append((1, 2.0))",
        "self.session.sent.popleft()",
        "seen.session.acceptance.observe(1.0, 2)",
        "session.drafts.timer.end_round(1, None)",
        "session.acceptance.worth = 1.0",
        "for session.drafts.may_draft in (1, 2): pass",
        "setattr(client, 'weight', 2.0)",
        "def f(peer):\n    peer.last_seen = 1.0",
    ],
)
def test_every_form_of_writing_is_found(source: str) -> None:
    assert writes(ast.parse(source), OWNED["verify_node/session"] | OWNED["verify_node/clients"])
