"""A snapshot of a verify node has plain figures; it forgets every client in the end, and none too soon."""

import math
from typing import Any

import msgspec
import pytest

from tests.fakes import Desk
from tests.verify_node.watch.page.snapshots import NODE
from verify_node.watch.snapshot import LOST_SHOWN_S, STALLED_S, ClientRow, Snapshot, Source, Watch

EPOCH_S = 1e9


class Scene:
    """A desk that is looked at."""

    def __init__(self, **options: Any) -> None:
        self.desk = Desk(**options)
        self.zero_s = EPOCH_S
        self.watch = Watch(self.desk.core, NODE, lambda: self.zero_s)

    def look(self, after_s: float = 0.0) -> Snapshot:
        self.desk.now += after_s
        self.desk.core.tick(self.desk.now)
        return self.watch.take(self.desk.now)

    def rows(self, after_s: float = 0.0) -> dict[str, ClientRow]:
        return {row.name: row for row in self.look(after_s).clients}

    def write(self, peer: str, number: int, num_rounds: int = 4) -> None:
        """Rounds of one session, begun here."""
        self.desk.hello(peer)
        self.desk.begin(peer, number, max_tokens=100)
        for _ in range(num_rounds):
            self.desk.now += 0.01  # longer than a round waits for others' drafts
            self.desk.draft(peer, number)
            self.desk.round()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_times_are_those_of_the_wall_clock_after_the_machine_slept(scene: Scene) -> None:
    scene.write("a", 1)
    before = scene.look()
    scene.zero_s += 3600.0  # monotonic clocks stand still meanwhile
    after = scene.look()
    assert [after.at - before.at, after.events[0].at - before.events[0].at] == [3600.0, 3600.0]
    scene.zero_s += 1e-5  # the two clocks are read one after the other
    assert scene.look().events == after.events, "the page keeps their rows, which may be selected"


def test_an_idle_node_and_a_client_that_writes(scene: Scene) -> None:
    idle = scene.look()
    assert (idle.at, idle.node, idle.num_rounds, idle.utility, idle.clients) == (EPOCH_S, NODE, 0, None, ())
    assert (idle.pool.num_pages, idle.pool.num_used) == (64, 0)
    scene.desk.now = 1.0
    scene.write("a", 1)
    seen = scene.look(after_s=1.0)
    [row] = seen.clients
    client = scene.desk.core.allocator.clients["a"]
    assert (row.name, row.state, row.since, row.draft_models) == ("a", "connected", EPOCH_S + 1.0, ("fake-draft",))
    assert (row.num_sessions, row.weight) == (1, 1.0)
    assert (row.acceptance_rate, row.goodput) == (client.acceptance.value, client.goodput.value)
    assert row.num_tokens == seen.num_tokens == scene.desk.core.counts.num_tokens > 4
    assert row.may_draft == scene.desk.session(1).drafts.may_draft
    assert seen.utility == pytest.approx(math.log(row.goodput))
    assert seen.pool.num_used > 0
    assert seen.num_rounds == 5


def test_what_clients_drafted_sums_to_the_whole(scene: Scene) -> None:
    """What a round drafts stays within the budget, also while what they may draft does not."""
    for number, name in enumerate("abc", 1):
        scene.write(name, number)
    seen = scene.look(after_s=1.0)
    core = scene.desk.core
    assert sum(row.num_drafted for row in seen.clients) == seen.num_drafted == core.counts.num_drafted
    assert seen.num_drafted <= seen.num_rounds * core.limits.budget
    assert core.limits.budget < sum(row.may_draft for row in seen.clients)
    assert min(row.num_drafted for row in seen.clients) > 0


def test_a_client_writes_makes_no_progress_and_is_idle(scene: Scene) -> None:
    scene.desk.hello("a")
    [row] = scene.look().clients
    assert (row.activity, row.moved, row.num_sessions) == ("idle", None, 0)
    scene.write("a", 1)
    moved = EPOCH_S + scene.desk.now
    [row] = scene.look(after_s=1.0).clients
    assert (row.activity, row.moved) == ("writing", moved)
    scene.desk.now += STALLED_S
    scene.desk.hello("a")  # it lives, and has been here all the time
    [row] = scene.look().clients
    assert (row.state, row.activity, row.moved, row.since) == ("connected", "stalled", moved, EPOCH_S)
    scene.desk.open("a", 2)  # one that is not stuck is enough
    [row] = scene.look().clients
    assert (row.activity, row.num_sessions) == ("writing", 2)


def test_a_silent_client_is_lost_and_then_forgotten(scene: Scene) -> None:
    scene.desk.hello("a")
    assert scene.rows(after_s=1.0)["a"].state == "connected"
    assert scene.rows(after_s=3.0)["a"].state == "silent"
    seen = scene.look(after_s=3.0)
    [lost] = seen.clients
    assert (lost.state, lost.since, lost.draft_models) == ("lost", EPOCH_S + 7.0, ("fake-draft",))
    assert seen.num_clients == 0
    assert [(event.kind, event.client) for event in seen.events] == [("lost", "a"), ("joined", "a")]
    assert set(scene.rows(after_s=LOST_SHOWN_S - 1)) == {"a"}
    assert scene.rows(after_s=2.0) == {}


def test_a_lost_client_that_comes_back_has_one_row(scene: Scene) -> None:
    scene.desk.hello("a")
    assert scene.rows(after_s=100.0)["a"].state == "lost"
    scene.desk.hello("a")
    [row] = scene.look().clients
    assert (row.state, row.since) == ("connected", EPOCH_S + 100.0)


def test_refusals_are_counted_and_told_and_no_text_is(scene: Scene) -> None:
    scene.desk.open("nobody")
    seen = scene.look()
    assert seen.refusals == {"hello_first": 1}
    assert [(event.kind, event.client, event.what) for event in seen.events] == [("refused", "", "hello_first")]
    scene.write("a", 1)
    told = msgspec.to_builtins(scene.look())
    assert not {"tokens", "prompt", "text", "seed", "session_id"} & set(_names(told))


def _names(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(name for inner in value.values() for name in _names(inner))]
    return [name for inner in value for name in _names(inner)] if isinstance(value, list | tuple) else []


def test_what_drafted_the_tokens(scene: Scene) -> None:
    scene.write("a", 1)
    counts = scene.desk.core.counts
    model = Source("model", counts.num_drafted, counts.num_accepted)
    assert counts.num_drafted > 0
    counts.drafted_by.update(ngram=30, self=7)  # of which these were accepted
    counts.accepted_by.update(ngram=20, self=1)
    assert scene.look().sources == (model, Source("ngram", 30, 20), Source("self", 7, 1))
