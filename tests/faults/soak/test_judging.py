"""Texts are judged on made data: exact, excused, late, wrong; and calm weather is told from faults."""

from collections.abc import Sequence
from typing import Any

import pytest

from goodspeed.wire.messages import Sampling
from tests.faults.soak.judging import AWAY_LIMIT_S, CALM_LIMIT_S, RECOVERY_S, Ending, Episode, Tally, Text, Weather
from tests.faults.soak.plan import VERIFY
from tests.faults.texts import Comparison, Wanted

OWN = list("the target's own text")
WANTED = Wanted("prompt", len(OWN), Sampling(temperature=0.0))


def compare(wanted: Wanted, got: Sequence[str], is_complete: bool) -> Comparison:
    """Compares as `texts.compare`, with a target that always writes OWN; a question mark is a near-tie."""
    if is_complete and len(got) != wanted.max_tokens:
        return Comparison("wrong", what="another length")
    wrong = [n for n, pair in enumerate(zip(got, OWN, strict=False)) if pair[0] not in (pair[1], "?")]
    if wrong or len(got) > len(OWN):
        return Comparison("wrong", what=f"token {wrong}")
    return Comparison("near_tie", got.count("?")) if "?" in got else Comparison("exact")


def text(tokens: Sequence[str], ending: Ending | None, reason: str = "length", **fields: Any) -> Text:
    made = Text(**{"node": "a", "rule": "match", "wanted": WANTED, "started_at": 100.0, **fields})
    made.tokens = list(tokens)
    if ending is not None:
        made.end(ending, reason, 110.0)
    return made


def verdict(one: Text, *episodes: Episode) -> str:
    tally = Tally()
    given = tally.take(one, Weather(list(episodes)), compare)
    assert tally.num_broken == len(tally.broken) == (given in ("wrong", "broken", "late"))
    return given


def test_whole_texts() -> None:
    assert verdict(text(OWN, "finished")) == "exact"
    assert verdict(text(["?", *OWN[1:]], "finished")) == "near_tie"
    assert verdict(text(["x", *OWN[1:]], "finished")) == "wrong"
    assert verdict(text(OWN[:-1], "finished")) == "wrong"
    assert verdict(text([*OWN, "s"], "finished")) == "wrong"
    assert verdict(text([*OWN[:3], *OWN[2:-1]], "finished")) == "wrong", "a token twice"
    assert verdict(text(OWN, "finished", "stop")) == "wrong", "nothing may stop it"


def test_under_ratio_lengths_are_all_that_can_be_held_against_anything() -> None:
    assert verdict(text("x" * len(OWN), "finished", rule="ratio")) == "complete"
    assert verdict(text("x" * (len(OWN) - 1), "finished", rule="ratio")) == "wrong"
    assert verdict(text("x" * (len(OWN) + 1), "finished", rule="ratio")) == "wrong"


def test_who_leaves_or_is_cut_off_has_got_a_true_beginning() -> None:
    kill = Episode("kill", "a", 105.0, 120.0)
    assert verdict(text(OWN[:5], "left")) == "left"
    assert verdict(text(["x"], "left")) == "wrong"
    assert verdict(text(OWN[:5], "broke", "connection reset"), kill) == "excused"
    assert verdict(text(["x"], "broke", "connection reset"), kill) == "wrong", "a kill excuses no wrong token"


@pytest.mark.parametrize(
    ("episode", "is_excused"),
    [
        (Episode("kill", "a", 105.0), True),
        (Episode("kill", "a", 99.9, 130.0), True),  # begun while it was dying
        (Episode("kill", "a", 50.0, 70.0), False),
        (Episode("kill", "a", 111.0, 130.0), False),
        (Episode("kill", "b", 105.0, 120.0), False),
        (Episode("kill", VERIFY, 105.0, 120.0), False),  # texts wait for the verify node
        (Episode("kill", VERIFY, 30.0, 30.0 + AWAY_LIMIT_S + 20.0), True),  # but not for ever
        (Episode("revoke", "a", 101.0, 108.0), False),
        (Episode("cut", "a", 30.0, 30.0 + AWAY_LIMIT_S + 20.0), True),
        (Episode("cut", "b", 30.0, 30.0 + AWAY_LIMIT_S + 20.0), False),
    ],
)
def test_what_excuses_a_broken_text(episode: Episode, is_excused: bool) -> None:
    assert verdict(text(OWN[:5], "broke", "verify_away"), episode) == ("excused" if is_excused else "broken")


def test_calm_is_when_nothing_is_wrong_nor_was_shortly_before() -> None:
    weather = Weather()
    assert weather.calm_s("a", 10.0, 50.0) == 40.0
    first = weather.begin("cut", "a", 20.0)
    assert weather.calm_s("a", 10.0, 50.0) == 10.0, "it goes on"
    assert weather.calm_s("b", 10.0, 50.0) == 40.0
    first.ended_at = 25.0
    assert weather.calm_s("a", 10.0, 60.0) == 10.0 + (60.0 - 25.0 - RECOVERY_S)
    weather.episodes.append(Episode("freeze", VERIFY, 30.0, 32.0))  # within the other's recovery
    assert weather.calm_s("a", 10.0, 60.0) == 10.0 + (60.0 - 32.0 - RECOVERY_S)
    assert weather.calm_s("b", 10.0, 60.0) == 20.0 + (60.0 - 32.0 - RECOVERY_S)
    assert weather.is_stormy("b", 32.0 + RECOVERY_S)
    assert not weather.is_stormy("b", 29.0)


def test_a_text_is_late_after_so_much_calm() -> None:
    weather = Weather([Episode("freeze", "a", 110.0, 120.0)])
    one = text([], None)
    stormy_s = 10.0 + RECOVERY_S
    assert not one.is_late(weather, 100.0 + CALM_LIMIT_S + stormy_s)
    assert one.is_late(weather, 100.1 + CALM_LIMIT_S + stormy_s)
    one.end("late", "", 200.0)
    assert verdict(one) == "late"
    assert not one.is_late(weather, 1000.0)


def test_a_texts_first_end_counts() -> None:
    one = text(OWN, "finished")
    one.end("broke", "the stream ended without a word", 111.0)
    assert (one.ending, one.ended_at) == ("finished", 110.0)
