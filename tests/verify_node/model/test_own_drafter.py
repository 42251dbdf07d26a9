"""The verify node's own draft model: the target's text whatever it drafts, and drafts only where they pay."""

import logging
import weakref
from collections.abc import Hashable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
from msgspec import structs

from goodspeed.app import reference
from goodspeed.engine import engines
from goodspeed.engine.base import Engine
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.wire.messages import DownMessage, LogitRules, Sampling
from tests import gguf_files
from tests.drafting.test_drafter import record_passes
from tests.fakes import make_open, session_id
from tests.micro import VOCAB, make_checkpoint, make_engine
from tests.verify_node.model.desk import TARGET, RealDesk
from verify_node.clients.calibration import Calibration
from verify_node.model.own_drafter import RESTED_ROUNDS, OwnDrafter
from verify_node.model.target import Target
from verify_node.process.assembly import make_draft_engine
from verify_node.scheduler.round import Drafting, DraftRequest, Outcome, Round

DRAFT = make_checkpoint(1, shift=0.05)
GREEDY, WARM = Sampling(temperature=0.0), Sampling(temperature=1.0, seed=5)


class OwnDesk(RealDesk):
    """A verify node with a real target and a draft model of its own; its draft node sends no drafts."""

    def __init__(self, draft: Any = DRAFT, engines: tuple[Engine, Engine] | None = None, **options: Any) -> None:
        """engines: of target and draft model, in place of those of TARGET and `draft`."""
        engine, own = engines or (make_engine(TARGET), make_engine(draft))
        self.own = OwnDrafter(own.checkpoint, own)
        target = Target(engine.checkpoint, engine, draft_model=self.own)
        super().__init__(target, has_draft_model=True, self_draft=False, **options)
        self.planned: list[Round] = []
        self.drafting: list[Drafting] = []
        self.target.run = self._run  # type: ignore[method-assign]
        self.hello("a")

    def _run(self, planned: Round) -> list[Outcome]:
        self.planned.append(planned)
        result = self.real.run(planned)
        self.drafting.append(result.drafting)
        return result.outcomes

    def finish(self, planned: Round, duration_s: float = 0.01, work_s: float = 0.0) -> list[DownMessage]:
        """Rounds of a second: passes of the draft model, which take real time, are cheap beside them."""
        return super().finish(planned, 100 * duration_s, work_s)

    def write(self, number: int = 1, num_rounds: int = 40, **changes: Any) -> tuple[int, ...]:
        """Opens a session, and returns its text when it is finished."""
        given: dict[str, Any] = {"prompt": (3, 1, 4), "max_tokens": 20} | changes
        self.open(number=number, **given)
        for _ in range(num_rounds):
            self.round()
            if self.session(number).finished:
                break
            self.acknowledge(number)
        return self.text(number)

    def alone_after(self, number: int) -> tuple[int, ...]:
        """The target's next tokens."""
        session = self.session(number)
        return alone(session.opened.sampling, 3, tuple(session.tokens))

    @property
    def num_drafted(self) -> int:
        return sum(planned.num_drafted for planned in self.planned)


def alone(sampling: Sampling, max_tokens: int = 20, prompt: tuple[int, ...] = (3, 1, 4)) -> tuple[int, ...]:
    return tuple(reference.generate(TARGET, make_engine(TARGET), prompt, sampling, max_tokens, ()))


@pytest.mark.parametrize("draft", [TARGET, DRAFT, make_checkpoint(9)], ids=["the target", "near", "unlike"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["T=0", "T=1"])
def test_texts_are_the_targets_own_whatever_is_drafted(draft: Any, sampling: Sampling) -> None:
    desk = OwnDesk(draft)
    assert desk.write(sampling=sampling) == alone(sampling)
    assert desk.num_drafted > 0


@pytest.mark.parametrize("has_torch", [True, False], ids=["torch", "OpenVINO"])
def test_target_and_draft_model_may_have_different_engines_and_sizes_of_pages(has_torch: bool) -> None:
    """has_torch: the target; the draft model is on the other engine."""
    names = ["tiny-draft-s", gguf_files.made("tiny-draft-s")]
    target, draft = map(engines.load, names if has_torch else reversed(names))
    engine = engines.start(target, num_pages=16, prefix_cache=True)
    own = make_draft_engine(draft, engine)
    assert {engine.pool.page_size, own.pool.page_size} == ({16, 32} if has_torch else {32})
    assert own.pool.has_prefix_cache
    for number in ("num_pages", "max_unused"):
        tokens, of_own = (getattr(pool, number) * pool.page_size for pool in (engine.pool, own.pool))
        assert tokens == of_own
    expected = reference.generate(target, engines.start(target, num_pages=16), (3, 1, 4), WARM, 60, ())
    desk = OwnDesk(engines=(engine, own))
    assert desk.write(num_rounds=100, max_tokens=60, sampling=WARM) == tuple(expected)
    assert (desk.core.counts.accepted_by["own"] > 30, desk.own.num_failures) == (True, 0)


def test_a_draft_model_that_is_always_right_saves_rounds() -> None:
    desk = OwnDesk(TARGET)
    assert desk.write(num_rounds=100, max_tokens=90, sampling=WARM) == alone(WARM, 90)
    assert len(desk.planned) <= 30
    counts = desk.core.counts
    assert counts.drafted_by == counts.accepted_by == {"own": desk.num_drafted}
    calibrated = desk.core.allocator.clients["a"].calibrations
    assert set(calibrated) == {"own"}  # the tokens of its index, had there been any, are calibrated apart


def test_a_pard_model_drafts_several_tokens_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = replace(make_checkpoint(1), mask_id=VOCAB - 1, num_parallel=4)
    desk = OwnDesk(draft)
    fed = record_passes(desk.own.drafter, monkeypatch)
    assert desk.write(sampling=WARM) == alone(WARM)
    assert desk.num_drafted > 0
    passes = [[chunk.num_logits for chunk in chunks] for chunks in fed]  # tokens drawn for the session
    assert [4] in passes
    assert all(drawn <= 4 for each in passes for drawn in each)
    assert sum(drafting.num_passes for drafting in desk.drafting) == len(passes)
    assert desk.own.engine.pool.length(session_id(1)) < len(desk.session(1).tokens) + 8  # no masks are cached


def test_one_slow_pass_does_not_end_drafting() -> None:
    desk = OwnDesk(TARGET)
    desk.own.pass_s = 1.0  # as long as a round
    desk.write(num_rounds=100, max_tokens=90)
    assert not any(planned.num_drafted for planned in desk.planned[:5])
    assert desk.num_drafted > 0


def test_many_texts_at_once_and_a_long_prompt_that_the_draft_model_reads_in_parts(monkeypatch: Any) -> None:
    monkeypatch.setattr("verify_node.model.own_drafter.PREFILL", 24)
    desk = OwnDesk(TARGET)
    prompts = {number: tuple(range(number, number + 40)) for number in range(1, 6)}
    for number, prompt in prompts.items():
        desk.open(number=number, prompt=prompt, sampling=Sampling(seed=number))
    for _ in range(40):
        desk.round()
        desk.acknowledge()
    for number, prompt in prompts.items():
        assert desk.text(number) == alone(Sampling(seed=number), prompt=prompt)
    assert desk.core.counts.accepted_by["own"] > 20


@pytest.mark.parametrize(
    "changes",
    [{"drafter": "none"}, {"drafter": "ngram"}, {"drafter": "model"}, {"max_draft": 0}, {"verification": "ratio"}],
    ids=["none", "ngram", "model", "max_draft", "ratio"],
)
def test_it_drafts_only_where_the_request_permits_it(changes: dict[str, Any]) -> None:
    desk = OwnDesk(TARGET)
    desk.write(num_rounds=8, **changes)
    assert not any(planned.draft_requests for planned in desk.planned)
    assert desk.num_drafted == 0


def test_it_does_not_draft_while_that_does_not_pay_nor_beside_promises_and_drafts_of_a_draft_node() -> None:
    desk = OwnDesk(TARGET)
    desk.open(prompt=(3, 1, 4))
    for _ in range(3):
        desk.core.rounds.model_switch.permits = False  # each time: a first text begins with own drafts
        desk.round()
    desk.core.rounds.model_switch.permits = True
    desk.open(number=2, prompt=(5, 6))
    desk.round()
    desk.draft(number=2, tokens=desk.alone_after(2))
    desk.round()
    wanted = [{one.session_id for one in planned.draft_requests} for planned in desk.planned]
    assert wanted == [set(), set(), set(), {session_id(1), session_id(2)}, {session_id(1)}]


def request_of(*, number: int = 1, stop_ids: tuple[int, ...] = (), **changes: Any) -> DraftRequest:
    values: dict[str, Any] = {"text": (3, 1, 4), "most": 20, "worth": 1.0, "least_probability": 0.0}
    opened = make_open(number, prompt=(3, 1, 4), sampling=GREEDY, stop_ids=stop_ids)
    return DraftRequest(opened=opened, calibrated=Calibration().by_code, **values | changes)


def draft(own: OwnDrafter, *requests: DraftRequest, number: int = 1, worth_per_s: float = 0.0) -> list[tuple[int, ...]]:
    """Drafts after the target's next token in each of these texts."""
    outcomes = [Outcome(one.session_id, alone(GREEDY, 1, tuple(one.text)), 0, 0.0) for one in requests]
    planned = Round(number, (), draft_requests=tuple(requests), worth_per_s=worth_per_s)
    return [one.own.tokens if one.own else () for one in own.add_to(planned, outcomes)[0]]


@pytest.fixture
def own() -> OwnDrafter:
    """It always drafts what the target draws."""
    return OwnDrafter(TARGET, make_engine(TARGET))


def test_it_ends_at_the_texts_end_and_before_stop_ids(own: OwnDrafter) -> None:
    text = alone(GREEDY, 9)
    assert draft(own, request_of(most=4)) == [text[1:4]]
    assert draft(own, request_of(stop_ids=(text[3],))) == [text[1 : text.index(text[3])]]
    assert draft(own, request_of(most=1)) == [()]


def test_a_text_is_compared_once_for_all_tokens_drafted_after_it(own: OwnDrafter, monkeypatch: Any) -> None:
    """`CountedTexts` recognises the text that it counted last by its identity."""
    texts, of = list[tuple[int, ...]](), own.drafter._counted.of

    def record(key: Hashable, text: tuple[int, ...], prompt_len: int) -> TextCounts:
        texts.append(text)
        return of(key, text, prompt_len)

    monkeypatch.setattr(own.drafter._counted, "of", record)
    request = request_of()
    opened = structs.replace(request.opened, logit_rules=LogitRules(presence_penalty=0.1))
    [tokens] = draft(own, structs.replace(request, opened=opened))
    assert len(texts) == len(tokens) > 2
    assert all(text is texts[0] for text in texts)


def test_a_pass_that_is_not_worth_its_time_is_not_run(own: OwnDrafter) -> None:
    own.pass_s = 0.01
    assert draft(own, request_of(), worth_per_s=100.0) == [()]  # a pass costs one token, and brings less
    assert draft(own, request_of(least_probability=0.65), worth_per_s=10.0) == [()]  # verifying takes 0.65 of 0.7
    assert draft(own, request_of(), worth_per_s=10.0) != [()]
    [tokens] = draft(own, request_of(least_probability=0.999999))
    assert len(tokens) == 1  # not worth verifying, but its claim remains tested


def test_a_pass_that_draws_several_tokens_is_worth_all_of_them() -> None:
    draft_model = replace(make_checkpoint(1), mask_id=VOCAB - 1, num_parallel=4)
    own = OwnDrafter(draft_model, make_engine(draft_model))
    own.pass_s = 0.01
    # a pass costs one token; 0.7 + 0.49 + 0.34 + 0.24 are expected
    assert draft(own, request_of(), worth_per_s=100.0) != [()]
    own.pass_s = 0.02
    assert draft(own, request_of(number=3), worth_per_s=100.0) == [()]


def test_texts_that_begin_alike_are_prefilled_once_unless_they_are_of_other_users(monkeypatch: Any) -> None:
    own = OwnDrafter(TARGET, make_engine(TARGET, prefix_cache=True))
    fed = record_passes(own.drafter, monkeypatch)
    text = tuple(range(2, 32))
    expected = draft(own, request_of(text=text, prefix_scope=b"ann"))
    for number, scope, num_fed in ((2, b"ann", 31 - 28), (3, b"ben", 31), (4, b"", 31), (5, b"", 31)):
        fed.clear()
        assert draft(own, request_of(number=number, text=text, prefix_scope=scope)) == expected
        assert sum(len(chunk.tokens) for chunk in fed[0]) == num_fed


def test_a_session_that_begins_anew_begins_with_an_empty_cache(own: OwnDrafter) -> None:
    draft(own, request_of(text=(9, 8, 7, 6)))
    own.keep({session_id(1)})
    assert own.engine.pool.length(session_id(1)) > 0
    own.keep({session_id(1)}, begun=(session_id(1),))
    assert draft(own, request_of()) == [alone(GREEDY, 9)[1:]]


def test_the_caches_of_ended_and_preempted_texts_are_freed() -> None:
    desk = OwnDesk(TARGET)
    pool = desk.own.engine.pool
    desk.write(1, sampling=WARM)
    assert session_id(1) in pool
    desk.begin(number=2, prompt=(5, 6), max_tokens=9)
    assert session_id(1) not in pool
    assert session_id(2) in pool
    desk.real.engine.pool.free(session_id(2))  # as a preemption does
    desk.own.keep(desk.real.engine.pool)
    assert pool.num_free == pool.num_pages


def test_if_it_fails_texts_go_on_without_it_and_the_node_says_so(caplog: Any, monkeypatch: Any) -> None:
    desk = OwnDesk(TARGET)
    forward = desk.own.engine.forward
    monkeypatch.setattr(desk.own.engine, "forward", lambda chunks: (forward(chunks), 1 / 0))
    with caplog.at_level(logging.ERROR):
        assert desk.write(sampling=WARM) == alone(WARM)
    assert desk.own.num_failures == 1
    assert all(drafting.rests for drafting in desk.drafting)
    assert [drafting.num_passes for drafting in desk.drafting[:2]] == [1, 0]
    assert "the draft model failed (ZeroDivisionError" in caplog.text
    assert desk.own.engine.pool.num_free == desk.own.engine.pool.num_pages
    monkeypatch.setattr(desk.own.engine, "forward", forward)
    assert draft(desk.own, request_of(), number=RESTED_ROUNDS) == [()]
    assert draft(desk.own, request_of(), number=RESTED_ROUNDS + 2) != [()]


def test_a_failed_passs_tensors_are_released_before_memory_is_freed(own: OwnDrafter, caplog: Any, monkeypatch: Any):
    free, tensors = list[bool](), list[weakref.ref[torch.Tensor]]()

    def fail(chunks: Any) -> torch.Tensor:
        logits = torch.ones(len(chunks))
        tensors.append(weakref.ref(logits))
        try:
            raise torch.OutOfMemoryError("no memory")
        except torch.OutOfMemoryError as error:
            raise RuntimeError("the pass failed") from error

    monkeypatch.setattr(own.engine, "forward", fail)
    monkeypatch.setattr(own.engine.pool, "free", lambda key: free.append(tensors[0]() is None))
    with caplog.at_level(logging.CRITICAL, "goodspeed.verify"):  # else pytest's own record of the error holds them
        assert draft(own, request_of()) == [()]
    assert free == [True]


def test_its_time_is_no_time_of_the_target() -> None:
    """The model of a round's time learns what a round takes without it; rounds as a whole are longer."""
    desk = OwnDesk(TARGET)
    desk.open(prompt=(3, 1, 4), max_tokens=20)
    for _ in range(4):
        planned = desk.plan()
        desk.core.rounds.finish(desk.target.run(planned), 0.05, desk.now, Drafting(0.04, 2))
    assert desk.core.rounds.cost.round_s(4, 1, 0) == pytest.approx(0.01)
    assert desk.core.rounds.round_s == pytest.approx(0.05)
    assert desk.core.counts.own_s == pytest.approx(0.16)
    assert desk.core.counts.num_own_passes == 8


def test_a_lagging_cache_is_filled_with_what_the_targets_prefill_leaves_of_a_round(own: OwnDrafter) -> None:
    text = request_of(text=tuple(range(2, 62)))
    lengths = []
    for room_left in (0.0, 20.0, inf):
        own.add_to(Round(1, (), draft_requests=(text,), room_left=room_left), [Outcome(text.session_id, (5,), 0, 0.0)])
        lengths.append(own.engine.pool.length(text.session_id))
    assert lengths[:2] == [16, 36]
    assert lengths[2] >= 60
