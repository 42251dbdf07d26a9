"""A draft node compiles its users' forms beside the event loop, and holds them while a text is written."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from draft_node.core.generation import Generation
from draft_node.service.service import ConstraintCompiler
from goodspeed.constraint import grammars
from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.errors import Busy, ConstraintError, ProcessError, ServiceError
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Sampling
from tests.constraint.babbler import VOCABULARY
from tests.fakes import session_id
from tests.waiting import run_async, until

FORM = Constraint("regex", "[ab]{5,9}")


def request(number: int, user: str, constraint: Constraint | None = FORM) -> Generation:
    return Generation(session_id(number), (1, 2), Sampling(), 9, user=user, constraint=constraint)


class Idle(DraftModel):
    def step(self) -> list[Proposed]:
        return []


def masks(constraints: Constraints, request: Generation) -> bool:
    """True if the draft model finds the form, without compiling anything."""
    job = UnfinishedProposal(Propose(request, 1, 0, request.prompt, 1), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammars, "compiled_matcher", _refuse)
        return Idle(constraints)._allowed(job, ()) is not None


def _refuse(constraint: Constraint, table: object) -> None:
    raise ConstraintError("not compiled here")


@pytest.fixture
def constraints() -> Constraints:
    return Constraints(VOCABULARY)


@pytest.fixture
def compiler(constraints: Constraints) -> Iterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(constraints)
    yield compiler
    compiler.close()


@run_async
async def test_the_draft_model_has_the_form_while_its_text_is_written(
    compiler: ConstraintCompiler, constraints: Constraints
) -> None:
    alices, bobs = request(1, "alice"), request(2, "bob")
    await compiler.check(FORM, "alice")
    assert not masks(constraints, alices)
    async with compiler.held(alices):
        await until(lambda: masks(constraints, alices))
        assert not masks(constraints, bobs)
    assert not masks(constraints, alices)
    assert constraints.holders == []


@run_async
async def test_a_text_neither_waits_for_its_form_nor_leaves_it_behind(
    compiler: ConstraintCompiler, constraints: Constraints, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, real = threading.Event(), constraints.compiled

    def compiled(constraint: Constraint) -> Compiled:
        assert goes_on.wait(30)
        return real(constraint)

    monkeypatch.setattr(constraints, "compiled", compiled)
    async with compiler.held(request(1, "alice")):
        await until(lambda: compiler._turns._users)
    goes_on.set()
    await until(lambda: not compiler._turns._users)
    assert constraints.holders == []


def test_what_does_not_pass_its_trial_is_refused_with_the_reason() -> None:
    tried: Any = SimpleNamespace(problem=lambda constraint: "compiling it takes too much time")
    compiler = ConstraintCompiler(Constraints(VOCABULARY, tried))
    with pytest.raises(ConstraintError, match="takes too much time"):
        asyncio.run(compiler.check(FORM, "alice"))
    compiler.close()


def test_that_nothing_can_be_compiled_is_no_constraints_fault() -> None:
    def problem(_: Constraint) -> None:
        raise ProcessError("the process does not start")

    compiler = ConstraintCompiler(Constraints(VOCABULARY, cast("Any", SimpleNamespace(problem=problem))))
    with pytest.raises(ServiceError, match="the process does not start"):
        asyncio.run(compiler.check(FORM, "alice"))
    compiler.close()


@run_async
async def test_where_too_much_of_a_user_waits_the_text_is_drafted_without_its_form(
    compiler: ConstraintCompiler, constraints: Constraints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise Busy("busy", "too much waits")

    monkeypatch.setattr(compiler._turns, "run", busy)
    async with compiler.held(request(1, "alice")):
        assert not masks(constraints, request(1, "alice"))


@pytest.mark.parametrize("constraint", [Constraint("regex", "a("), None])
@run_async
async def test_a_text_whose_constraint_is_not_compiled_here_is_written_all_the_same(
    compiler: ConstraintCompiler, constraints: Constraints, constraint: Constraint | None
) -> None:
    async with compiler.held(request(1, "alice", constraint)):
        assert not masks(constraints, request(1, "alice", constraint))
