"""Prompts beside texts that go on: rounds of a fake target on machines whose time is computed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from random import Random
from statistics import median
from typing import Any

import pytest

from goodspeed.engine.paged.pages import PagePool
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import CostModel, Linear, Roofline
from goodspeed.slo.objectives import Objectives
from goodspeed.wire.messages import Slo
from tests.fakes import Desk, make_entry, session_id
from verify_node.model.own_drafter import LEAST_PREFILL
from verify_node.scheduler.prefill import FIRST, LONGEST, UNMEASURED, Prefill, attended
from verify_node.scheduler.round import Round

LONG = 4000


@dataclass(frozen=True)
class Machine:
    """Computes the time of rounds; its profile knows rows alone."""

    fixed_s: float
    row_s: float
    attended_s: float = 0.0  # of a row, for each token before it
    logits_s: float = 0.0

    def round_s(self, planned: Round) -> float:
        work = sum(attended(one.start, len(one.tokens)) for one in planned.entries)
        logits = sum(len(one.prompt_rows.tokens) for one in planned.entries if one.prompt_rows is not None)
        return self.fixed_s + self.row_s * planned.num_tokens + self.attended_s * work + self.logits_s * logits

    def profile(self, times: float = 1.0) -> Linear:
        """times: by which it is wrong about rows."""
        return Linear(fixed_s=self.fixed_s, token_s=self.row_s * times)


CPU = Machine(0.04, 0.002, 2e-6, 0.001)
"""About what 135 million weights take in float32 on one core."""

STEEP = Machine(0.04, 0.002, 1e-4)
"""A row behind a long context takes longer than a round."""


class Serving:
    """A verify node with texts that go on, whose rounds take the machine's time."""

    def __init__(self, machine: Machine, cost: CostModel | None, num_decoding: int = 2, **options: Any) -> None:
        settings = {"num_pages": 4000, "page_size": 16, "context_len": 1 << 15, "max_round_tokens": 512} | options
        self.desk = Desk(self_draft=False, cost=cost, validates=False, **settings)
        self.machine = machine
        self.rounds: list[tuple[Round, float]] = []
        for name in "abc":
            self.desk.hello(name, draft_model="")
        for number in range(1, num_decoding + 1):
            self.open("a", number, max_tokens=20_000)
        if num_decoding:
            self.serve(10)

    def open(self, name: str, number: int, **changes: Any) -> None:
        assert self.desk.open(name, number, max_draft=0, **changes) == []

    def serve(self, most: int, until: Callable[[], bool] = lambda: False) -> list[float]:
        """Runs at most so many rounds; returns how long they took."""
        first = len(self.rounds)
        while len(self.rounds) - first < most and not until():
            planned = self.desk.plan()
            self.rounds.append((planned, self.machine.round_s(planned)))
            self.desk.finish(planned, self.rounds[-1][1])
            self.desk.acknowledge()
        return [seconds for _, seconds in self.rounds[first:]]

    def open_long(self, number: int = 9, name: str = "b", length: int = LONG, **changes: Any) -> None:
        """Opens a session with a prompt of this length, which begins with its number, and short text."""
        self.open(name, number, **({"prompt": prompt(length, number % 25), "max_tokens": 5} | changes))

    def prefill(self, number: int = 9, name: str = "b", length: int = LONG, **changes: Any) -> list[float]:
        """The same, and serves until its text has begun; returns how long the rounds took."""
        self.open_long(number, name, length, **changes)
        took = self.serve(3000, lambda: self.has_begun(number))
        assert self.has_begun(number)
        return took

    def has_begun(self, number: int) -> bool:
        return len(self.desk.session(number).tokens) > len(self.desk.session(number).opened.prompt)

    def prefill_of(self, number: int) -> list[int]:
        """Tokens of its prompt that each round took."""
        entries = [entry for planned, _ in self.rounds for entry in planned.entries if entry.num_prefill]
        return [entry.num_prefill for entry in entries if entry.session_id == session_id(number)]

    def prefill_s(self, number: int, begun: int = 0) -> float:
        """Seconds that its prompt took, from the round `begun` on."""
        entries = [entry for planned, _ in self.rounds[begun:] for entry in planned.entries if entry.num_prefill]
        own = [entry for entry in entries if entry.session_id == session_id(number)]
        attended_to = sum(attended(entry.start, entry.num_prefill) for entry in own)
        return self.machine.row_s * sum(entry.num_prefill for entry in own) + self.machine.attended_s * attended_to


def prompt(length: int, first: int = 1) -> tuple[int, ...]:
    return (first, *(1 + number % 25 for number in range(1, length)))


PROFILES = {
    "a profile of rows": CPU.profile(),
    "rows take five times longer": CPU.profile(0.2),
    "rows take a fifth": CPU.profile(5.0),
    "no profile": None,
}


@pytest.mark.parametrize("cost", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("rounds", ["continuous", "barrier"])
def test_a_long_prompt_makes_others_wait_three_times_as_long_at_most(cost: CostModel | None, rounds: str) -> None:
    serving = Serving(CPU, cost, rounds=rounds)
    usual_s = median(serving.serve(10))
    gaps = serving.prefill()
    assert median(gaps) <= 3.0 * usual_s
    assert sorted(gaps)[-len(gaps) // 10] <= 3.3 * usual_s, "nine of ten"
    alone_s = LONG * (CPU.row_s + CPU.attended_s * LONG / 2)
    assert sum(gaps) < 2.0 * alone_s, "and prompts get more than half of the time"


@pytest.fixture
def serving() -> Serving:
    """Two texts go on at the CPU, whose profile is right about rows."""
    return Serving(CPU, CPU.profile())


def test_so_does_one_after_the_other_for_ever(serving: Serving) -> None:
    """One user always has a new prompt: from time to time a round without any shows what rounds take without."""
    usual_s = median(serving.serve(10))
    gaps = [gap for number in range(10, 16) for gap in serving.prefill(number, length=1500, max_tokens=1)]
    assert median(gaps) <= 3.0 * usual_s
    num_plain = sum(not planned.prefilled for planned, _ in serving.rounds[20:])
    assert 1 <= num_plain <= 1 + len(gaps) / UNMEASURED


@pytest.mark.parametrize("times", [1.75, 3.0, 1 / 3])
def test_a_machine_that_became_slower_reads_as_many_tokens_a_round(times: float) -> None:
    """Rows were once blamed for it, so rounds had fewer, which looked dearer still: at the end one a round."""
    serving = Serving(Machine(0.04, 0.002), CPU.profile())
    serving.prefill(length=600)
    serving.machine = Machine(0.04 * times, 0.002 * times)
    for number in range(10, 18):
        serving.prefill(number, length=50)
    assert all(len(serving.prefill_of(number)) <= 2 for number in range(13, 18))
    assert max(max(serving.prefill_of(number)) for number in range(13, 18)) < 60


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside a prompt", "just before it"])
def test_one_slow_round_changes_little(serving: Serving, *, is_beside: bool) -> None:
    serving.prefill(8, length=600)
    usual_s = median(serving.serve(10))
    if is_beside:
        serving.open_long()
    serving.serve(5)
    serving.machine = Machine(CPU.fixed_s * 4, CPU.row_s * 4, CPU.attended_s * 4)
    serving.serve(1)
    serving.machine = CPU
    if not is_beside:
        serving.open_long()
    assert max(serving.serve(30)) <= 3.3 * usual_s
    assert min(serving.prefill_of(9)) > 15


GPU = Roofline((Linear(fixed_s=0.01), Linear(fixed_s=0.002, token_s=1e-5)))
"""Reads its weights for as long as it computes hundreds of rows."""


@pytest.mark.parametrize(
    ("profile", "num_prefill"),
    [(CPU.profile(), 2), (CPU.profile(), 50), (GPU, 50)],
    ids=["few rows", "many rows", "rows that cost nothing"],
)
def test_the_scatter_of_rounds_makes_no_row_dear(profile: CostModel, num_prefill: int) -> None:
    prefill, noise = Prefill(Refined(profile), PagePool(1, 1)), Random(1)
    text, prompt = make_entry(1, 200, (1,)), make_entry(2, 0, (1,) * num_prefill, samples=False)
    for number in range(1000):
        done = Round(number, (text, prompt) if number % 4 else (text,))
        prefill.observe(done, profile.round_s(done.num_tokens, 2, 200) * exp(noise.gauss(0.0, 0.1)))
    prefill.begin(())
    assert 0.8 < prefill.room.row < 1.25
    assert FIRST[1] / 2 < prefill.room.context < 2 * FIRST[1], "short prompts hardly show it"


@pytest.mark.parametrize(
    ("machine", "profile", "num_tokens", "least"),
    [(STEEP, STEEP.profile(), 2000, 1), (CPU, Roofline((Linear(fixed_s=0.04), Linear(token_s=1.0))), 60, 5)],
    ids=["behind a long context", "by the profile"],
)
def test_a_prompt_advances_however_dear_a_row_is(machine: Machine, profile: CostModel, num_tokens: int, least: int):
    serving = Serving(machine, profile)
    serving.prefill(length=num_tokens)
    assert min(serving.prefill_of(9)) == least


@pytest.mark.parametrize(
    ("machine", "opened"),
    [
        (Machine(0.04, 0.002, 0.0, 0.02), {"prompt": prompt(600), "num_prompt_logprobs": 1}),
        (CPU, {"prompt": (1, 2), "committed": tuple(range(1, 20)) * 40}),
    ],
    ids=["with logprobs of the prompt", "opened again"],
)
def test_what_else_must_be_prefilled_holds_up_others_no_longer(machine: Machine, opened: dict[str, Any]) -> None:
    serving = Serving(machine, machine.profile())
    usual_s = median(serving.serve(10))
    serving.open("b", 9, max_tokens=2000, **opened)
    num_tokens = len(serving.desk.session(9).tokens)
    gaps = serving.serve(500, lambda: serving.desk.core.pool.length(session_id(9)) >= num_tokens)
    assert len(gaps) > 5
    assert median(gaps) <= 3.0 * usual_s


def test_where_rows_take_no_longer_nothing_changes() -> None:
    serving = Serving(Machine(0.01, 0.0), GPU, max_round_tokens=2048)
    serving.prefill()
    assert serving.prefill_of(9) == [1024, 1024, 1024, 927]


def test_clients_get_prefill_by_their_weights(serving: Serving) -> None:
    serving.desk.core.allocator.client("b").weight = 2.0
    for name, number in (("b", 8), ("c", 9)):
        serving.open_long(number, name)
    serving.serve(90)
    assert serving.prefill_s(8) / serving.prefill_s(9) == pytest.approx(2.0, rel=0.15)
    serving.serve(1000, lambda: serving.has_begun(9))
    assert serving.has_begun(8)
    assert serving.has_begun(9)


def test_a_client_behind_a_long_context_takes_no_more_time_than_another() -> None:
    serving = Serving(CPU, CPU.profile(), num_decoding=0)
    serving.open_long(8, "c", 20_000)
    serving.serve(100, lambda: serving.desk.core.pool.length(session_id(8)) > 16_000)
    for number in (1, 2):
        serving.open("a", number, max_tokens=20_000)
    serving.serve(40)
    serving.open_long()
    begun = len(serving.rounds)
    serving.serve(100)
    assert not serving.has_begun(8)
    assert not serving.has_begun(9)
    ratio = serving.prefill_s(9, begun) / serving.prefill_s(8, begun)
    assert 0.6 < ratio < 1.6, "what rows cost behind a long context is learned roughly"


def test_a_client_that_comes_later_waits_for_no_long_prompt_and_stops_none_for_long(serving: Serving) -> None:
    serving.open_long(8)
    serving.serve(60)
    assert len(serving.prefill(9, "c", 30)) <= 2
    serving.open_long(7, "c")
    begun = len(serving.prefill_of(8))
    serving.serve(20)
    assert len(serving.prefill_of(8)) - begun >= 5


def test_a_short_prompt_does_not_wait_for_a_long_one_of_its_own_client_which_gets_half_of_the_rounds(serving):
    serving.open_long(8)
    serving.serve(10)
    for number in range(20, 40):
        serving.open_long(number, length=30, max_tokens=1)
        serving.serve(2)
    assert sum(serving.has_begun(number) for number in range(20, 40)) >= 15
    before = sum(serving.prefill_of(8))
    serving.serve(20)
    assert sum(serving.prefill_of(8)) - before >= 5


def test_a_promised_prompt_is_prefilled_as_promised() -> None:
    """It must be there in 4 s, which is faster than rounds of three times the usual length would bring it."""
    machine = Machine(0.04, 0.002)
    serving = Serving(machine, machine.profile(), admission="dp")
    serving.open_long(length=1000, slo=Slo(Objectives(ttft_s=4.0)))
    assert serving.desk.session(9).promised
    began = serving.desk.now
    serving.serve(200, lambda: serving.has_begun(9))
    assert serving.desk.now - began <= 4.0


def test_best_effort_keeps_its_floor_beside_a_promised_prompt() -> None:
    """The promised prompt takes all that a round may take longer; the floor of the other is owed all the same."""
    machine = Machine(0.04, 0.002)
    serving = Serving(machine, machine.profile(), admission="dp")
    serving.open_long(8, "c")
    serving.open_long(slo=Slo(Objectives(ttft_s=14.0)))
    assert serving.desk.session(9).promised
    serving.serve(40)
    taken: Counter[bytes] = Counter()
    for planned, _ in serving.rounds[10:]:
        taken.update({entry.session_id: entry.num_prefill for entry in planned.entries})
    assert taken[session_id(9)] > taken[session_id(8)] >= sum(taken.values()) / 4 / 3, "of three clients"


def test_the_own_draft_model_prefills_in_what_the_target_leaves(serving: Serving) -> None:
    usual = serving.desk.plan()
    rows = (LONGEST - 1.0) * CPU.profile().round_s(2, 2, 0) / CPU.row_s
    assert usual.room_left == pytest.approx(rows, abs=1.0)
    serving.desk.finish(usual, 0.04)
    serving.open_long()
    serving.serve(1)
    assert serving.rounds[-1][0].room_left < LEAST_PREFILL


def test_what_costs_nothing_can_be_found_to_cost_something() -> None:
    serving = Serving(Machine(1e-6, 0.0), CPU.profile())
    for number in range(20, 24):
        serving.prefill(number, length=2000, max_tokens=1)
    serving.machine = CPU
    usual_s = median(serving.serve(20))
    assert median(serving.prefill()) <= 3.0 * usual_s
