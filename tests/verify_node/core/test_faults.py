"""A fault at any call within `plan` or `finish` costs its round and no text, and one within a message its session."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from experiments.simulation.nodes.invariants import validate
from goodspeed.fair.round_time import Linear
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Ack, Refusal, Slo, Verdict
from tests.fakes import Desk, expected, make_open, session_id

NUMBERS = (1, 2, 3)
EVERY = 997
"""One of so many calls raises, in turn."""


class Fault(Exception):
    """Raised where nobody expects it."""


class Faults:
    """Raises at the call of one of this program's functions, counted from where it was made."""

    def __init__(self, at: int | None = None, *, always: str = "") -> None:
        """at: which call; None: at none. always: at each call of a function of this name."""
        self.num_calls = 0
        self._at, self._always = at, always

    @contextmanager
    def here(self) -> Iterator[None]:
        """Calls within the block count."""
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        is_ours = "/tests/" not in file and ("/verify_node/" in file or "/fair/" in file)
        if event == "call" and is_ours and name != "<genexpr>":  # generators that are thrown away may not raise
            self.num_calls += 1
            if self.num_calls == self._at or (self._always and name == self._always):
                raise Fault


class World:
    """Three sessions of two draft nodes that open again what ends by no fault of its own."""

    def __init__(self, faults: Faults, **options: Any) -> None:
        self.faults, self.desk = faults, Desk(validates=False, **options)
        self.texts: dict[int, list[int]] = {number: [] for number in NUMBERS}
        self.epochs, self.given_up = dict.fromkeys(NUMBERS, 0), set[int]()
        self.over: set[int] = set()
        self.num_aborted = 0
        for name in ("a", "b"):
            self.desk.hello(name)
        for number in NUMBERS:
            self.open(number)

    def open(self, number: int) -> None:
        self.epochs[number] += 1
        slo = Slo(Objectives(ttft_s=1.0, tpot_s=0.05)) if number > 1 else None
        told = self.texts[number]
        opened = make_open(number, epoch=self.epochs[number], committed=tuple(told), slo=slo)
        self.take(self.desk.up("a" if number < 3 else "b", opened))

    def take(self, answers: list[Any]) -> None:
        for answer in answers:
            if isinstance(answer, Verdict):
                self._apply(answer)
            elif isinstance(answer, Refusal) and answer.session_id is not None:
                number = int.from_bytes(answer.session_id, "big")
                if answer.code == "unknown_session":
                    self.open(number)
                else:
                    self.given_up.add(number)

    def _apply(self, verdict: Verdict) -> None:
        number = int.from_bytes(verdict.session_id, "big")
        text, length = self.texts[number], len(make_open(number).prompt)
        text[verdict.base_len - length :] = verdict.tokens
        if verdict.finish_reason is not None:
            self.over.add(number)
        else:
            self.desk.up("a" if number < 3 else "b", Ack(session_id(number), verdict.epoch, length + len(text)))

    def run(self, num_rounds: int = 100) -> None:
        for _ in range(num_rounds):
            if self.over | self.given_up == set(NUMBERS):
                return
            for number in NUMBERS:
                if session_id(number) in self.desk.core.sessions:
                    self.desk.draft("a" if number < 3 else "b", number, alpha=0.6)
            try:
                answers = self.round()
            except Fault:
                self.num_aborted += 1
                answers = [send.message for send in self.desk.core.rounds.abort("Fault", self.desk.now)]
            validate(self.desk.core)
            self.take(answers)

    def round(self) -> list[Any]:
        core = self.desk.core
        self.desk.now += 0.01
        with self.faults.here():
            planned = core.plan(self.desk.now)
        validate(core)
        if planned is None:
            return []
        outcomes = self.desk.target.run(planned)
        with self.faults.here():
            return [send.message for send in core.rounds.finish(outcomes, 0.01, self.desk.now)]


OPTIONS: dict[str, Any] = {"admission": "dp", "cost": Linear(fixed_s=0.004, token_s=0.004)}


def test_a_fault_at_any_call_costs_a_round_and_no_text() -> None:
    whole = World(Faults(), **OPTIONS)
    whole.run()
    assert whole.over == set(NUMBERS)
    assert whole.faults.num_calls > 1000
    num_aborted = 0
    for at in range(1, whole.faults.num_calls, EVERY):
        world = World(Faults(at), **OPTIONS)
        world.run()
        assert world.num_aborted == world.desk.core.counts.num_failed <= 1, "Python drops some faults"
        num_aborted += world.num_aborted
        assert world.over | world.given_up == set(NUMBERS)
        for number in world.over:
            assert tuple(world.texts[number]) == expected(number)
        assert len(world.given_up) <= 1, "the one whose round failed when it was alone"
    assert num_aborted > 10


@pytest.mark.parametrize("name", ["allocate", "choose"])
def test_while_rounds_always_fail_each_text_is_told_so_in_its_turn(name: str) -> None:
    world = World(Faults(always=name), **OPTIONS)
    world.run(300)  # more than `PATIENCE_S`
    assert world.given_up == set(NUMBERS)
    assert not world.desk.core.sessions


def test_a_message_that_fails_costs_its_session_and_is_answered() -> None:
    desk = Desk("a", "b", rounds="barrier")
    for number in (1, 2):
        desk.open(number=number)
    desk.round()
    draft, core = desk.honest_draft(1), desk.core
    assert core.plan(desk.now) is None
    [send] = core.fail(b"a", draft, "Fault", desk.now)
    assert (send.message.code, send.message.session_id) == ("failed", session_id(1))
    assert "Fault" in send.message.what
    [send] = core.fail(b"b", desk.honest_draft(2), "Fault", desk.now)
    assert session_id(2) in core.sessions, "it is another's"
    validate(core)
    assert core.fail(b"nobody", draft, "Fault", desk.now) == []
    assert set(core.sessions) == {session_id(2)}
