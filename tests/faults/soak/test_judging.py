"""Texts are judged on made data: exact, excused, late, wrong; and calm weather is told from faults."""

from collections.abc import Sequence

import pytest

from goodspeed.wire.messages import Sampling
from tests.faults.soak.judging import AWAY_LIMIT_S, CALM_LIMIT_S, RECOVERY_S, Episode, Tally, Text, Weather
from tests.faults.soak.plan import VERIFY
from tests.faults.texts import Comparison, Wanted

OWN = list("the target's own text")
WANTED = Wanted("prompt", len(OWN), Sampling(temperature=0.0))
KILL = Episode("kill", "a", 105.0, 120.0)
LONG_S = AWAY_LIMIT_S + 20.0


def compare(wanted: Wanted, got: Sequence[str], is_complete: bool) -> Comparison:
    """Compares as `texts.compare`, with a target that always writes OWN; a question mark is a near-tie."""
    if any(one not in (own, "?") for one, own in zip(got, OWN, strict=False)) or len(got) > len(OWN):
        return Comparison("wrong", what="another token")
    return Comparison("near_tie", got.count("?")) if "?" in got else Comparison("exact")


@pytest.mark.parametrize(
    ("verdict", "tokens", "rule", "ending", "episode"),
    [
        ("exact", OWN, "match", "finished length", None),
        ("near_tie", ["?", *OWN[1:]], "match", "finished length", None),
        ("wrong", ["x", *OWN[1:]], "match", "finished length", None),
        ("wrong", OWN[:-1], "match", "finished length", None),
        ("wrong", OWN, "match", "finished stop", None),  # nothing may stop it
        ("complete", ["x"] * len(OWN), "ratio", "finished length", None),
        ("wrong", ["x"] * (len(OWN) - 1), "ratio", "finished length", None),
        ("left", OWN[:5], "match", "left", None),
        ("wrong", ["x"], "match", "left", None),
        ("wrong", ["x"], "match", "broke", KILL),  # a kill excuses no wrong token
        ("late", OWN[:5], "match", "late", None),
        ("broken", OWN[:5], "match", "broke", None),
        ("excused", OWN[:5], "match", "broke", KILL),
        ("excused", OWN[:5], "match", "broke", Episode("kill", "a", 99.9, 130.0)),  # begun while its node was dying
        ("broken", OWN[:5], "match", "broke", Episode("kill", "a", 50.0, 70.0)),
        ("broken", OWN[:5], "match", "broke", Episode("kill", "a", 111.0, 130.0)),  # after its end
        ("broken", OWN[:5], "match", "broke", Episode("kill", "b", 105.0, 120.0)),
        ("broken", OWN[:5], "match", "broke", Episode("kill", VERIFY, 105.0, 120.0)),  # texts wait for the verify node
        ("excused", OWN[:5], "match", "broke", Episode("kill", VERIFY, 30.0, 30.0 + LONG_S)),  # but not for ever
        ("excused", OWN[:5], "match", "broke", Episode("cut", "a", 30.0, 30.0 + LONG_S)),
        ("broken", OWN[:5], "match", "broke", Episode("revoke", "a", 101.0, 108.0)),
    ],
)
def test_a_text_is_judged(verdict: str, tokens: list[str], rule: str, ending: str, episode: Episode | None) -> None:
    text = Text("a", rule, WANTED, 100.0, list(tokens))  # type: ignore[arg-type]
    how, _, reason = ending.partition(" ")
    text.end(how, reason, 110.0)  # type: ignore[arg-type]
    text.end("broke", "the first end counts", 111.0)
    tally = Tally()
    assert tally.take(text, Weather([episode] if episode else []), compare) == verdict
    assert tally.num_broken == len(tally.broken) == (verdict in ("wrong", "broken", "late"))


def test_calm_is_when_nothing_is_wrong_nor_was_shortly_before() -> None:
    weather = Weather()
    first = weather.begin("cut", "a", 20.0)
    assert weather.calm_s("a", 10.0, 50.0) == 10.0, "it goes on"
    assert weather.calm_s("b", 10.0, 50.0) == 40.0
    first.ended_at = 25.0
    weather.episodes.append(Episode("freeze", VERIFY, 30.0, 32.0))  # within the other's recovery
    assert weather.calm_s("a", 10.0, 60.0) == 10.0 + (60.0 - 32.0 - RECOVERY_S)
    text = Text("a", "match", WANTED, 10.0)
    since_s = 32.0 + RECOVERY_S - 10.0  # of the calm from 10 s to 20 s
    assert not text.is_late(weather, 10.0 + CALM_LIMIT_S + since_s - 10.0)
    assert text.is_late(weather, 10.1 + CALM_LIMIT_S + since_s - 10.0)
