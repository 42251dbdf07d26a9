"""Worlds with several verify nodes: nothing is found in any of them, and what is broken on purpose is."""

from dataclasses import replace

import pytest

from draft_node.core.links import Links
from experiments.simulation.faults import play_fleet
from experiments.simulation.fleet.worlds import some_fleet
from experiments.simulation.settings import Fleet, Settings, with_faults
from experiments.simulation.texts.text import alone
from tests.experiments.simulation.test_faults import run

CALM = Settings(num_verifies=3, num_clients=4, num_sessions=4, max_sessions=4)
KILLED = replace(with_faults(CALM, restart_every_s=0.3, down_s=3.0, connections=True), num_sessions=6)
CIRCLES = replace(CALM, num_sessions=10, min_tokens=40, fleet=Fleet(lies="empty"))


def generations(world):
    return [generation for draft in world.drafts for generation in draft.done]


def total(world, name):
    return sum(getattr(draft, name) for draft in world.fleet_drafts)


@pytest.mark.thorough
def test_nothing_is_found_in_many_worlds(capsys):
    code, report, _ = run(capsys, "--fleet", "--seeds", "12", "--first", "100")
    assert code == 0, report
    # So that something happens in these worlds: a dozen of them, whose texts are short.
    assert report["num_redirects"] > 50
    assert report["num_moves"] >= 5
    assert report["num_deaths"] > 15


def test_a_seed_plays_again_in_the_same_way():
    (first, _), (again, _) = play_fleet(6, KILLED), play_fleet(6, KILLED)
    assert first.clock.num_events == again.clock.num_events
    assert [one.delivered for one in generations(first)] == [one.delivered for one in generations(again)]


def test_texts_outlive_the_verify_nodes_that_they_began_at():
    worlds = [play_fleet(seed, KILLED) for seed in range(3)]
    assert all(found.what == [] for _, found in worlds)
    assert sum(total(world, "num_moves") for world, _ in worlds) > 3
    assert all(one.finish for world, _ in worlds for one in generations(world))


@pytest.mark.thorough
def test_verify_nodes_that_stop_send_their_texts_on():
    often = with_faults(CALM, down_s=0.5, connections=True)
    rolling = replace(often, fleet=Fleet(roll_every_s=2.0), num_sessions=20, min_tokens=40, max_sessions=100)
    world, found = play_fleet(1, rolling)
    assert found.what == []
    assert total(world, "num_redirects") > 0
    assert all(one.finish for one in generations(world))


def test_nobody_is_sent_in_circles_for_ever():
    world, found = play_fleet(2, CIRCLES)
    assert found.what == []
    assert total(world, "num_redirects") > 10
    assert max(draft.most_redirects for draft in world.fleet_drafts) == 0


def test_a_text_goes_on_where_its_target_is_though_another_came_back():
    settings = with_faults(KILLED, retarget=1.0)
    for seed in range(2):
        world, found = play_fleet(seed, settings)
        assert found.what == []
        for one in generations(world):
            whole = alone(one.session.request, target=int(one.session.target))
            assert tuple(one.delivered) == whole[: len(one.delivered)]


@pytest.mark.thorough
def test_a_large_fleet():
    settings = replace(CALM, num_verifies=64, num_clients=3, num_sessions=2, max_sessions=1)
    world, found = play_fleet(1, settings)
    assert found.what == []
    assert len({boot for draft in world.fleet_drafts for boot in draft.core.links.verify_nodes.addresses()}) == 64


def test_settings_reach_every_size():
    sizes = {some_fleet(seed).num_verifies for seed in range(300)}
    assert {1, 2, 3, 4, 5, 8, 13} <= sizes
    assert 14 < max(sizes) <= 64


def test_sessions_that_never_leave_a_dead_verify_node_are_found(monkeypatch):
    monkeypatch.setattr(Links, "_waits_until", lambda links, session_id, own: 1e9)
    gone = replace(CALM, fleet=Fleet(gone_every_s=0.2), num_sessions=10)
    assert any(play_fleet(seed, gone, limit_s=100.0)[1].what for seed in range(3))
