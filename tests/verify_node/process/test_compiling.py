"""The constraints of open sessions are compiled beside the event loop; the node then begins the sessions."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.matcher import Matcher
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Verdict
from tests.constraint.babbler import VOCABULARY
from tests.fakes import STOP, make_open, session_id
from tests.verify_node.loops import Loop, ask, hear, served


class SlowForms(Constraints):
    """Compiles on whatever thread asks, and tells which; every form is right."""

    table: Any = SimpleNamespace(eos_ids=frozenset({STOP}))

    def __init__(self):
        super().__init__(VOCABULARY)
        self.sources: list[str] = []
        self.threads: set[str] = set()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def compiled(self, constraint):
        self.threads.add(threading.current_thread().name)
        self.sources.append(constraint.source)
        assert self.goes_on.wait(30)
        if constraint.source == "raises":
            raise ZeroDivisionError
        return Matcher(self.table, constraint)


@pytest.fixture
def forms() -> Any:
    return SlowForms()


def opening(number, source="a", **changes):
    return make_open(number, constraint=Constraint("regex", source), stop_ids=(STOP,), **changes)


@served
async def test_others_are_served_while_a_form_is_compiled(forms):
    forms.goes_on.clear()
    async with Loop(constraints=forms) as loop:
        channel = await loop.let_in()
        await channel.send(opening(1))
        verdict = await ask(channel, make_open(2))
        assert verdict.session_id == session_id(2)
        for message in (opening(1), Ack(session_id(1), 1, 3)):  # as after a second without an answer
            await channel.send(message)
        forms.goes_on.set()
        while (verdict := await hear(channel)).session_id != session_id(1):
            assert isinstance(verdict, Verdict)
    assert forms.sources == ["a"]
    assert threading.current_thread().name not in forms.threads


@pytest.mark.parametrize("failing", ["the compiler", "the core"])
@served
async def test_a_form_that_fails_ends_its_own_session_only(forms, failing, monkeypatch):
    async with Loop(constraints=forms) as loop:
        channel = await loop.let_in()
        if failing == "the core":
            monkeypatch.setattr(loop.core.sessions, "compiled", None)
        refusal = await ask(channel, opening(1, "raises" if failing == "the compiler" else "a"))
        assert refusal.code == ("constraint" if failing == "the compiler" else "failed")
        monkeypatch.undo()
        assert isinstance(await ask(channel, opening(2)), Verdict)
