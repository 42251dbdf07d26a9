"""Forms of open sessions: compiled when they open, kept until no round can need them, and for nobody else to notice."""

from typing import Any

import pytest

from goodspeed.errors import GrammarError
from goodspeed.grammar import compiling
from goodspeed.grammar.compiling import Grammar, Grammars
from goodspeed.grammar.tokens import TokenTable
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Close
from tests.fakes import Desk, session_id
from tests.grammar.babbler import VOCABULARY
from verify_node.core import settings as core_settings
from verify_node.core.settings import CoreSettings

ONE, OTHER = Constraint("regex", "[ab]{5,9}"), Constraint("regex", "[cd]{5,9}")


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(VOCABULARY)


@pytest.fixture
def desk(grammars: Grammars) -> Desk:
    plain = Desk()
    welcome, pool = plain.core.welcome, plain.core.pool
    desk = Desk(core_settings.make_core(CoreSettings(budget=8), welcome, pool, grammars=grammars))
    desk.hello("a")
    desk.hello("b")
    return desk


def open_one(desk: Desk, number: int, constraint: Constraint = ONE, *, peer: str = "a", **changes: Any) -> None:
    desk.open(peer, number, constraint=constraint, stop_ids=tuple(VOCABULARY.eos_ids), **changes)


def is_held(grammars: Grammars, number: int, constraint: Constraint = ONE) -> bool:
    """Whether the target need not compile it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_constraint", _refuse)
        try:
            grammars.of(session_id(number), constraint)
        except GrammarError:
            return False
    return True


def _refuse(constraint: Constraint, table: object) -> None:
    raise GrammarError("not compiled here")


def test_an_open_session_holds_its_form_until_it_is_closed(desk: Desk, grammars: Grammars) -> None:
    open_one(desk, 1)
    assert is_held(grammars, 1)
    desk.round()
    desk.up("a", Close(session_id(1), 1))
    assert is_held(grammars, 1)  # a round might be in flight
    desk.round()
    assert not is_held(grammars, 1)


def test_a_session_that_is_refused_holds_nothing(desk: Desk, grammars: Grammars) -> None:
    desk.open("a", 1, constraint=ONE, stop_ids=())
    assert not is_held(grammars, 1)


def test_what_opens_again_with_another_form_holds_both_while_a_round_is_in_flight(
    desk: Desk, grammars: Grammars
) -> None:
    open_one(desk, 1)
    planned = desk.core.plan(desk.now)
    assert planned is not None
    open_one(desk, 1, OTHER, epoch=2)
    assert is_held(grammars, 1)
    assert is_held(grammars, 1, OTHER)
    desk.core.finish(desk.target.run(planned), 0.01, desk.now)
    desk.core.plan(desk.now)
    assert not is_held(grammars, 1)
    assert is_held(grammars, 1, OTHER)


def test_what_opens_again_between_rounds_holds_the_newest(desk: Desk, grammars: Grammars) -> None:
    open_one(desk, 1)
    open_one(desk, 1, OTHER, epoch=2)
    assert not is_held(grammars, 1)
    assert is_held(grammars, 1, OTHER)
    desk.open("a", 1, epoch=3)
    assert not is_held(grammars, 1, OTHER)


def test_another_client_or_user_has_the_same_form_compiled_anew(
    desk: Desk, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = list[str]()
    real = compiling.compile_constraint

    def compile_once_more(one: Constraint, table: TokenTable) -> Grammar:
        compiled.append(one.source)
        return real(one, table)

    monkeypatch.setattr(compiling, "compile_constraint", compile_once_more)
    open_one(desk, 1, cache_salt=b"alice")
    open_one(desk, 2, cache_salt=b"alice")
    assert len(compiled) == 1
    open_one(desk, 3, cache_salt=b"bob")
    open_one(desk, 4, peer="b", cache_salt=b"alice")
    open_one(desk, 5)
    open_one(desk, 6)
    assert len(compiled) == 5
    open_one(desk, 6, epoch=2)
    assert len(compiled) == 5
