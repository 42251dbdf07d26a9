"""The harness by itself: what it calls exact, and that processes end, die, freeze and come back."""

from dataclasses import replace

import pytest

from goodspeed.wire.messages import Sampling
from tests.faults import texts
from tests.faults.texts import check, compare, expected, mixed


def test_what_is_wrong_is_called_wrong() -> None:
    wanted = mixed(12)[1]
    own = expected(wanted)
    assert compare(wanted, own).verdict == "exact"
    assert expected(replace(wanted, max_tokens=5)) == own[:5]
    assert "is '?!'" in compare(wanted, [*own[:7], "?!", *own[8:]]).what
    for wrong in (own[:-1], [*own[:3], *own[2:]], [*own[:3], *own[4:], own[-1]]):
        assert compare(wanted, wrong).verdict == "wrong"
    assert compare(wanted, own[:-1], is_complete=False).verdict == "exact"
    with pytest.raises(AssertionError, match="11 tokens instead of 12"):
        check(wanted, own[:-1])


@pytest.mark.parametrize("sampling", [texts.GREEDY, Sampling(temperature=0.8, top_k=40, seed=5)])
def test_a_near_tie_is_counted_and_what_follows_it_compared(sampling, monkeypatch) -> None:
    wanted = replace(mixed(10)[3], sampling=sampling)
    target = texts.alone(wanted.model)
    ids = target.ids(wanted.prompt)
    begun = (*ids, *target.written(ids, sampling, 4))
    _, second = target.two_best(begun, sampling)
    got = [*expected(wanted)[:4], target.name(second), *target.names((*begun, second), sampling, 5)]
    assert compare(wanted, got).verdict == "wrong"
    monkeypatch.setattr(texts, "NEAR_TIE", float("inf"))
    assert compare(wanted, got) == texts.Comparison("near_tie", 1)
    assert compare(wanted, [*got[:-1], "?!"]).verdict == "wrong"
