"""A draft node compiles its users' forms beside the event loop, and holds them while a text is written."""

import asyncio
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from draft_node.core.generation import Generation
from draft_node.service.service import ConstraintCompiler
from goodspeed.constraint import grammars
from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.errors import Busy, ConstraintError, ProcessError, ServiceError
from goodspeed.wire.generation import Constraint, Sampling
from tests.constraint.babbler import VOCABULARY
from tests.fakes import session_id
from tests.waiting import until

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
        patch.setattr(grammars, "compiled_matcher", Mock(side_effect=ConstraintError("not compiled here")))
        return Idle(constraints)._allowed(job, ()) is not None


@pytest.fixture
def constraints() -> Constraints:
    return Constraints(VOCABULARY)


@pytest.fixture
def compiler(constraints: Constraints) -> Iterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(constraints)
    yield compiler
    compiler.close()


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


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (Mock(return_value="it takes too much time"), ConstraintError("it takes too much time")),
        (Mock(side_effect=ProcessError("it does not start")), ServiceError("", "it does not start")),
    ],
    ids=["too costly", "no process"],
)
def test_what_does_not_pass_its_trial_is_refused_and_that_none_can_be_made_is_no_constraints_fault(problem, error):
    compiler = ConstraintCompiler(Constraints(VOCABULARY, Mock(problem=problem)))
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(compiler.check(FORM, "alice"))
    compiler.close()


async def test_where_too_much_of_a_user_waits_the_text_is_drafted_without_its_form(
    compiler: ConstraintCompiler, constraints: Constraints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler._turns, "run", Mock(side_effect=Busy("busy", "too much waits")))
    async with compiler.held(request(1, "alice")):
        assert not masks(constraints, request(1, "alice"))


@pytest.mark.parametrize("constraint", [Constraint("regex", "a("), None])
async def test_a_text_whose_constraint_is_not_compiled_here_is_written_all_the_same(
    compiler: ConstraintCompiler, constraints: Constraints, constraint: Constraint | None
) -> None:
    async with compiler.held(request(1, "alice", constraint)):
        assert not masks(constraints, request(1, "alice", constraint))
