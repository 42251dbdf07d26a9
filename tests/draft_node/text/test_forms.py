"""Forms of a draft node's users: each user's own, and kept for the draft model as long as their texts are written."""

import asyncio
from collections.abc import Iterator

import pytest

from draft_node.core.actions import Propose, Request
from draft_node.model.forms import allowed
from draft_node.model.job import Job
from draft_node.text.forms import Forms
from goodspeed.errors import GrammarError
from goodspeed.grammar import compiling, kept
from goodspeed.grammar.compiling import Grammars
from goodspeed.grammar.kept import scope_of
from goodspeed.grammar.matchers import Matchers
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Sampling
from tests.fakes import session_id
from tests.grammar.babbler import VOCABULARY

FORM = Constraint("regex", "[ab]{5,9}")


def request(number: int, user: str, constraint: Constraint | None = FORM) -> Request:
    return Request(session_id(number), (1, 2), Sampling(), 9, user=user, constraint=constraint)


def masks(grammars: Grammars, request: Request) -> bool:
    """Whether the draft model finds the form, without compiling anything."""
    job = Job(Propose(request, 1, 0, request.prompt, 1), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_constraint", _refuse)
        return allowed(Matchers(grammars), job) is not None


def _refuse(constraint: Constraint, table: object) -> None:
    raise GrammarError("not compiled here")


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(VOCABULARY)


@pytest.fixture
def forms(grammars: Grammars) -> Iterator[Forms]:
    forms = Forms(grammars)
    yield forms
    forms.close()


def test_a_users_form_is_not_known_to_another(forms: Forms, grammars: Grammars) -> None:
    asyncio.run(forms.check(FORM, "alice"))
    assert [grammars.known(FORM, scope_of(user)) for user in ("alice", "bob", "")] == [True, False, False]


def test_the_draft_model_finds_the_form_while_its_text_is_written(
    forms: Forms, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT", 1)
    alices, bobs = request(1, "alice"), request(2, "bob")

    async def write() -> None:
        await forms.check(FORM, "alice")
        for source in "abc":
            await forms.check(Constraint("regex", source), "alice")
        async with forms.held(alices):  # which compiles it again, beside the event loop
            for source in "abc":
                await forms.check(Constraint("regex", source), "alice")
            assert masks(grammars, alices)
            assert not masks(grammars, bobs)
        assert masks(grammars, alices)  # a proposal that is under way still finds it
        await forms.check(Constraint("regex", "d"), "alice")
        assert not masks(grammars, alices)

    asyncio.run(write())


def test_a_text_whose_form_cannot_be_compiled_here_is_written_all_the_same(forms: Forms, grammars: Grammars) -> None:
    async def write(constraint: Constraint | None) -> bool:
        async with forms.held(request(1, "alice", constraint)):
            return masks(grammars, request(1, "alice", constraint))

    assert not asyncio.run(write(Constraint("regex", "a(")))
    assert not asyncio.run(write(None))
