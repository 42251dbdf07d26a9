"""Constrained texts by the embedded models: drafted or not they are what the target writes alone in its masks."""

import json
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from goodspeed.app import reference
from goodspeed.constraint import grammars
from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.wire.fields import Verification
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Close, OpenSession, Refusal, Sampling, Verdict
from tests.fakes import Desk, make_open, session_id
from tests.together.cluster.cluster import Cluster, make_request
from tests.verify_node.model.desk import RealDesk
from verify_node.model.target import Target

TARGET = checkpoints.load("tiny-target")
CONSTRAINTS = Constraints(TARGET)
(END,) = TARGET.eos_ids
PROMPT = tuple(TARGET.tokenizer("def read_lines(path):")["input_ids"])
PERSON = Constraint(
    "json_schema",
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", '
    '"minimum": 0, "maximum": 120}}, "required": ["name", "age"], "additionalProperties": false}',
)
FORMS = [PERSON, Constraint("regex", "(yes|no), [a-z ]{3,20}\\."), Constraint("choice", '["red", "green"]')]
SAMPLINGS = [Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=50, seed=5)]


def decode(tokens: Sequence[int]) -> str:
    return str(TARGET.tokenizer.decode(list(tokens)))


def alone(constraint: Constraint, sampling: Sampling) -> list[int]:
    matcher = CONSTRAINTS.get(constraint)
    return list(reference.generate(TARGET, start(TARGET, num_pages=16), PROMPT, sampling, 60, (END,), matcher=matcher))


@pytest.mark.thorough
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_drafted_texts_keep_their_form_and_are_the_targets_own_under_match(verification: Verification) -> None:
    wanted = list(product(FORMS, SAMPLINGS))
    asked = partial(make_request, PROMPT, 60, verification=verification, drafter="model")
    requests = [replace(asked(constraint=form), sampling=sampling) for form, sampling in wanted]
    served = Cluster({"preset": "paper"}, {"a": {"model": "tiny-draft-m"}}).serve({"a": requests})["a"]
    for (form, sampling), got in zip(wanted, served, strict=True):
        if verification == "match":
            assert list(got.tokens) == alone(form, sampling)
        if form is PERSON:
            assert set(json.loads(decode(got.tokens))) == {"name", "age"}
    assert sum(got.statistics.accepted["model"] for got in served) > 5


class FormDesk(RealDesk):
    """A verify node with the embedded target, which drafts by itself."""

    def __init__(self, *names, **options):
        constraints = Constraints(TARGET)  # in which nobody else holds anything
        target = Target(TARGET, start(TARGET, num_pages=64), constraints=constraints)
        super().__init__(target, context_len=200, constraints=constraints, **options)
        for name in names:
            self.hello(name)
        self.num_drafted: dict[str | None, int] = {}

    def write(self, opened: OpenSession):
        self.hello(draft_model="")
        assert self.up("a", opened) == []
        for _ in range(100):
            for verdict in self.round():
                assert isinstance(verdict, Verdict), verdict
                self.num_drafted[verdict.source] = self.num_drafted.get(verdict.source, 0) + verdict.num_accepted
            session = self.core.sessions[opened.session_id]
            if session.finished:
                break
            self.up("a", Ack(opened.session_id, opened.epoch, len(session.tokens)))
        text = session.tokens[len(opened.prompt) :]
        self.up("a", Close(opened.session_id, opened.epoch))
        return text


def opening(constraint=PERSON, number=1, **changes):
    usual: dict[str, Any] = {"prompt": PROMPT, "sampling": SAMPLINGS[1], "max_tokens": 60, "stop_ids": (END,)}
    return make_open(number, constraint=constraint, **(usual | changes))


def test_no_form_is_compiled_in_a_round_for_a_text_that_is_preempted_or_opened_again(monkeypatch):
    constraint = Constraint("choice", '["the red one", "the green one"]')
    desk = FormDesk()
    desk.hello(draft_model="")
    for number in range(1, 4):
        desk.up("a", opening(constraint, number))
    monkeypatch.setattr(grammars, "compiled_matcher", None)
    desk.round()
    desk.core.pool.free(session_id(1))  # as a preemption does
    desk.round()
    for number, stop_ids in [(2, (END, 1)), (3, (END,))]:
        desk.up("a", opening(constraint, number, epoch=2, stop_ids=stop_ids))
    for number in range(1, 4):
        while not desk.session(number).finished:
            assert desk.round()
            desk.acknowledge()
        assert decode(desk.text(number)) in ("the red one", "the green one")


def test_constraints_are_announced_and_texts_keep_them():
    desk = FormDesk()
    assert desk.hello("b").constraints
    assert not Desk().hello().constraints
    assert desk.write(opening()) == alone(PERSON, SAMPLINGS[1])


@pytest.mark.thorough
def test_what_the_form_forces_is_drafted_here_without_any_draft_model():
    desk = FormDesk()
    desk.write(opening())
    assert desk.num_drafted["self"] > 6
    assert desk.write(opening(number=2, drafter="none")) == alone(PERSON, SAMPLINGS[1])
    none = FormDesk()
    none.write(opening(drafter="none"))
    assert none.num_drafted == {None: 0}
    paper = FormDesk(rounds="barrier")
    paper.write(opening(max_draft=0))
    assert paper.num_drafted == {None: 0}


def test_a_session_that_is_opened_again_goes_on_in_its_form():
    right = alone(PERSON, SAMPLINGS[1])
    text = FormDesk().write(opening(committed=tuple(right[:5]), epoch=3))
    assert text == right


def test_what_cannot_be_served_is_refused_by_name():
    desk = FormDesk("a")
    for wrong, why in [
        (opening(Constraint("regex", "a(")), "unclosed group"),
        (opening(Constraint("json_schema", '{"not": {}}')), '"not"'),
        (opening(stop_ids=()), "among stop_ids, and has none"),
    ]:
        [refusal] = desk.up("a", wrong)
        assert (refusal.code, why in refusal.what) == ("constraint", True)
    [refusal] = Desk("a").open(constraint=PERSON)
    assert "constraints are not supported" in refusal.what


def test_committed_tokens_that_break_the_form_end_the_session_and_no_other():
    desk = FormDesk("a")
    desk.up("a", opening(number=1))
    desk.up("a", opening(number=2, committed=(5, 6)))
    messages = [message for _ in range(3) for message in desk.round()]
    refused = [message for message in messages if isinstance(message, Refusal)]
    assert [message.session_id for message in refused] == [session_id(2)]
    assert "violates the constraint" in refused[0].what
    assert list(desk.core.sessions) == [session_id(1)]
