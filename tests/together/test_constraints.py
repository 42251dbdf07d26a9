"""Constrained texts by the embedded models: drafted or not they are what the target writes alone in its masks."""

import json
from collections.abc import Sequence

import pytest

from draft_node.core.generation import Generation
from goodspeed.app import generation
from goodspeed.constraint import grammars
from goodspeed.constraint.compiling import Constraints
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Ack, Close, OpenSession, Refusal, Sampling, Verdict
from tests.fakes import Desk, make_entry, make_hello, make_open, session_id
from tests.verify_node.model.desk import RealDesk
from verify_node.model.target import Target
from verify_node.scheduler.round import Round

TARGET, DRAFT = checkpoints.load("tiny-target"), checkpoints.load("tiny-draft-m")
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


def alone(constraint: Constraint, sampling: Sampling, most: int = 60) -> list[int]:
    matcher = CONSTRAINTS.get(constraint)
    return list(
        generation.generate(TARGET, start(TARGET, num_pages=16), PROMPT, sampling, most, (END,), matcher=matcher)
    )


class Pair:
    """Drafter and target, without nodes."""

    def __init__(self, constraint, sampling, verification="match", *, drafts_in_form=True):
        self.request = Generation(
            session_id(1), PROMPT, sampling, 60, (END,), verification, constraint=constraint if drafts_in_form else None
        )
        self.constraint = constraint
        CONSTRAINTS.hold(session_id(1), CONSTRAINTS.get(constraint))
        self.drafter = Drafter(DRAFT, start(DRAFT, num_pages=64), k=16, constraints=CONSTRAINTS)
        self.target = Target(TARGET, start(TARGET, num_pages=64), constraints=CONSTRAINTS)
        self.num_drafted = self.num_accepted = 0

    def write(self):
        output: list[int] = []
        for number in range(60):
            self.drafter.add(Propose(self.request, 1, number, (*PROMPT, *output), 4))
            [proposed] = [one for _ in range(6) if self.drafter.busy for one in self.drafter.step()]
            text = (*PROMPT, *output)
            start = self.target.engine.pool.length(session_id(1))
            entry = make_entry(
                1,
                start,
                (*text[start:], *proposed.tokens),
                len(proposed.tokens),
                sampling=self.request.sampling,
                verification=self.request.verification,
                proposal=proposed.proposal,
                stop_ids=(END,),
                constraint=self.constraint,
                prompt=PROMPT,
                text=text,
            )
            [outcome] = self.target.run(Round(number, (entry,))).outcomes
            assert (outcome.invalid, outcome.failed) == ("", "")
            self.num_drafted += len(proposed.tokens)
            self.num_accepted += outcome.num_accepted
            self.target.engine.pool.truncate(session_id(1), len(text) + outcome.num_accepted)
            for token in outcome.tokens:
                if token == END:
                    return output
                output.append(token)
        return output


@pytest.mark.thorough
@pytest.mark.parametrize("constraint", FORMS, ids=lambda one: one.kind)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "warm"])
def test_a_drafted_text_is_the_targets_own(constraint, sampling):
    right = alone(constraint, sampling)
    pair = Pair(constraint, sampling)
    assert pair.write() == right
    blind = Pair(
        constraint, sampling, drafts_in_form=False
    )  # as a draft node without the grammar, or a hostile one, would draft
    assert blind.write() == right
    assert pair.num_accepted >= blind.num_accepted
    if constraint is PERSON:
        assert set(json.loads(decode(right))) == {"name", "age"}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_the_ratio_rule_writes_within_the_form(seed):
    pair = Pair(PERSON, Sampling(temperature=1.0, seed=seed), "ratio")
    assert set(json.loads(decode(pair.write()))) == {"name", "age"}
    assert pair.num_accepted > 0


# -- a verify node -----------------------------------------------------------------------------------------------------


class FormDesk(RealDesk):
    """A verify node with the embedded target, which drafts by itself."""

    def __init__(self, **options):
        constraints = Constraints(TARGET)  # in which nobody else holds anything
        target = Target(TARGET, start(TARGET, num_pages=64), constraints=constraints)
        super().__init__(target, context_len=200, constraints=constraints, **options)
        self.num_drafted: dict[str | None, int] = {}

    def write(self, opened: OpenSession):
        self.up("a", make_hello("a", draft_model=""))
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
    values = {
        "prompt": PROMPT,
        "sampling": SAMPLINGS[1],
        "max_tokens": 60,
        "stop_ids": (END,),
        "constraint": constraint,
    }
    return make_open(number, **(values | changes))


def test_no_form_is_compiled_in_a_round_for_a_text_that_is_preempted_or_opened_again(monkeypatch):
    constraint = Constraint("choice", '["the red one", "the green one"]')
    desk = FormDesk()
    desk.up("a", make_hello("a", draft_model=""))
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
    desk = FormDesk()
    desk.hello("a")
    for wrong, why in [
        (opening(Constraint("regex", "a(")), "unclosed group"),
        (opening(Constraint("json_schema", '{"not": {}}')), '"not"'),
        (opening(stop_ids=()), "among stop_ids, and has none"),
    ]:
        [refusal] = desk.up("a", wrong)
        assert (refusal.code, why in refusal.what) == ("constraint", True)
    plain = Desk()
    plain.hello("a")
    [refusal] = plain.up("a", make_open(constraint=PERSON))
    assert "constraints are not supported" in refusal.what


def test_committed_tokens_that_break_the_form_end_the_session_and_no_other():
    desk = FormDesk()
    desk.hello("a")
    desk.up("a", opening(number=1))
    desk.up("a", opening(number=2, committed=(5, 6)))
    messages = [message for _ in range(3) for message in desk.round()]
    refused = [message for message in messages if isinstance(message, Refusal)]
    assert [message.session_id for message in refused] == [session_id(2)]
    assert "violates the constraint" in refused[0].what
    assert list(desk.core.sessions) == [session_id(1)]
