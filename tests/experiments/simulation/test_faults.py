"""The search for faults finds none, and each of its checks can fail: whatever is broken on purpose is counted."""

import json
import math
from dataclasses import replace

import msgspec
import pytest

from draft_node.core.session import Session
from experiments.simulation.checking.allowed_wait import patience_s, shares_a_fate
from experiments.simulation.checking.checks import Silence, look_back
from experiments.simulation.checking.worlds import some_settings
from experiments.simulation.clock import Clock, Watch
from experiments.simulation.faults import LIMIT_S, main, play
from experiments.simulation.settings import Faults, Settings, with_faults
from experiments.simulation.texts.text import alone
from experiments.simulation.world import World
from goodspeed.engine.paged.pages import PagePool
from goodspeed.slo.objectives import SHORTEST_S
from goodspeed.wire.messages import Refusal
from verify_node.core import core as verify_core
from verify_node.core.settings import DEFAULTS
from verify_node.scheduler.commit import Moved
from verify_node.session import draft_state
from verify_node.session.draft_state import MOST_LATE_S

CALM = Settings(num_clients=3, num_sessions=2)
HANGING = with_faults(replace(CALM, rounds="barrier"), hang=0.5)


def run(capsys, *arguments):
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out.splitlines()[-1]), err


@pytest.mark.thorough
def test_nothing_is_found_in_any_of_many_worlds(capsys):
    code, report, _ = run(capsys, "--seeds", "50")
    assert code == 0, report
    assert report["num_cached"] > 500
    for name in ("num_wrong", "num_lost", "num_duplicated", "pages_left", "num_silent", "num_unearned", "num_broken"):
        assert report[name] == 0
    assert report["failing_seeds"] == []
    assert report["num_rounds"] > 5_000
    assert report["num_sessions"] > 300
    assert report["num_faults"] > 3_000


def test_random_worlds_have_everything_and_half_of_them_the_default():
    def every(name):
        return {one for world in worlds for one in getattr(world, name)}

    worlds = [some_settings(seed) for seed in range(200)]
    assert every("claims") == {"known", "certain", "impossible", "random"}
    assert every("ngrams") == {"off", "index", "right", "hostile"}
    assert (every("trees"), every("has_model")) == ({"own", "hostile"}, {True, False})
    assert {slo.tpot_s for slo in every("slos") if slo is not None} >= {None, SHORTEST_S, 60.0}
    assert 40 < sum(not one.prefix_cache for one in worlds) < 80
    assert sum(one.prefix_cache and one.repeats > 0 for one in worlds) > 80
    assert {one.rounds for one in worlds} == {"continuous", "barrier"}
    defaults = [one for one in worlds if (one.rounds, one.policy) == (DEFAULTS.rounds, DEFAULTS.policy)]
    assert 80 <= len(defaults) <= 130
    for some in (worlds, defaults):
        assert {rule for one in some for rule in one.verification} == {"match", "ratio"}


def test_a_seed_plays_again_in_the_same_way():
    (first, _), (again, _) = play(6), play(6)
    assert first.clock.num_events == again.clock.num_events
    assert first.refusals == again.refusals
    texts = [[generation.delivered for draft in world.drafts for generation in draft.done] for world in (first, again)]
    assert texts[0] == texts[1]


def test_a_draft_node_that_applies_a_verdict_twice_is_found(monkeypatch):
    apply = Session._apply

    def twice(session, verdict, now):
        actions = apply(session, verdict, now)
        again = msgspec.structs.replace(verdict, base_len=len(session.tokens))
        return actions if session.done or not actions else actions + apply(session, again, now)

    monkeypatch.setattr(Session, "_apply", twice)
    _, found = play(1, CALM, limit_s=300.0)
    assert found.num_wrong > 0
    assert found.num_duplicated > 0


def test_a_token_that_the_verify_node_loses_is_found(monkeypatch):
    verdict = Moved.verdict

    def lose_the_last(moved, *arguments):
        said = verdict(moved, *arguments)
        return said if said.finish_reason is None else msgspec.structs.replace(said, tokens=said.tokens[:-1])

    monkeypatch.setattr(Moved, "verdict", lose_the_last)
    _, found = play(1, replace(CALM, stops=0.0))
    assert (found.num_wrong, found.num_lost, found.num_duplicated) == (6, 6, 0)


def test_pages_that_are_not_given_back_are_found(monkeypatch):
    monkeypatch.setattr(PagePool, "free", lambda pool, key: None)
    world = World(1, CALM)  # which does not validate its core: that finds them sooner
    silence = Silence(world)
    world.run(LIMIT_S)
    found = look_back(world, silence)
    assert found.pages_left > 0
    assert found.num_wrong == found.num_broken == 0


def test_a_rule_broken_in_a_round_is_found(monkeypatch):
    monkeypatch.setattr(PagePool, "truncate", lambda pool, key, length: None)
    _, found = play(1, CALM)
    assert found.num_broken == 1
    assert any("BrokenInvariant: session" in what for what in found.what)


def test_a_client_that_is_forgotten_is_found(monkeypatch):
    monkeypatch.setattr(Session, "tick", lambda session, now: [])
    for name in ("LEAST_LATE_S", "MOST_LATE_S"):
        monkeypatch.setattr(draft_state, name, math.inf)  # else it would be gone on without
    _, found = play(1, HANGING, limit_s=2 * patience_s(HANGING))
    assert found.num_silent > 0
    assert found.num_lost > 0
    assert found.num_broken == 1  # it never comes to its end


def test_a_refusal_that_nobody_earned_is_found(monkeypatch):
    refused = Refusal("wrong_base", "nothing", "wait")
    monkeypatch.setattr(verify_core, "check_draft", lambda draft, *_: refused if draft.base_len % 3 else None)
    _, found = play(1, CALM, limit_s=300.0)
    assert found.num_unearned > 0


def test_failing_seeds_are_named_with_their_command_and_the_others_go_on(monkeypatch, capsys):
    monkeypatch.setattr(PagePool, "free", lambda pool, key: None)
    code, report, err = run(capsys, "--first", "10", "--seeds", "3")
    assert code == 1
    assert len(report["failing_seeds"]) > 1
    assert report["num_worlds"] == 3
    for seed in report["failing_seeds"]:
        assert f"python -m experiments.simulation.faults --first {seed} --seeds 1" in err
    assert "is finished, but has memory" in err


def test_only_sessions_that_the_target_cannot_compute_fail_and_no_other():
    world, found = play(3, replace(with_faults(CALM, bad=0.3), num_sessions=6))
    assert found.what == []
    generations = [generation for draft in world.drafts for generation in draft.done]
    failed = [generation for generation in generations if generation.fail]
    assert 0 < len(failed) < len(generations)
    assert {generation.session.request.session_id for generation in failed} == world.verify.failures.given_up
    for generation in generations:
        if not generation.fail:
            assert tuple(generation.delivered) == alone(generation.session.request)


RETARGETED = replace(with_faults(CALM, restart_every_s=0.3, retarget=1.0), num_sessions=6)


def test_a_text_is_never_continued_by_another_target():
    ended = []
    for seed in range(5):
        world, found = play(seed, RETARGETED)
        assert found.what == []
        ended += [generation for draft in world.drafts for generation in draft.done]
    changed = [generation for generation in ended if generation.fail]
    assert {generation.fail.code for generation in changed} == {"target_changed"}
    assert len({generation.session.target for generation in ended}) > 3
    assert len(changed) < len(ended)


def test_a_text_that_two_targets_wrote_is_found(monkeypatch):
    monkeypatch.setattr(Session, "connect", lambda session, now, *there, **served: session._open(now))
    assert sum(play(seed, RETARGETED)[1].num_wrong for seed in range(5)) > 0


def test_rounds_that_fail_as_a_whole_cost_time_only():
    world, found = play(3, replace(with_faults(CALM, abort=0.2), num_sessions=6))
    assert found.what == []
    assert world.verify.failures.num_faults > 5


def test_patience_grows_with_what_has_to_be_made_good():
    alone_s, together_s = patience_s(CALM), patience_s(replace(CALM, rounds="barrier"))
    assert not shares_a_fate(CALM)
    assert shares_a_fate(replace(CALM, rounds="barrier"))
    assert shares_a_fate(replace(CALM, max_sessions=2))
    assert alone_s < together_s < patience_s(with_faults(CALM, lose=0.3))
    assert patience_s(replace(CALM, faults=Faults(hang=0.1))) == pytest.approx(alone_s + MOST_LATE_S + 0.1)


def test_a_watch_shows_the_time_that_it_was_set_to_whatever_its_drift():
    """A node that sleeps until then would otherwise wake up too early, again and again."""
    for step in range(1000):
        watch = Watch(Clock(), ahead_s=1e6 * (step % 2), drift=0.05 - step * 1e-4)
        time = 1e6 * (step % 2) + 0.1 * step
        at = watch.until(time)
        watch._clock.now = at
        assert time <= watch.now < time + 1e-8
