"""20,000 hostile messages at a real verify node while honest draft nodes write: it lives, counts them, stays flat."""

from typing import get_args

import pytest

from goodspeed.wire.messages import RefusalCode
from tests.fuzz import live

pytestmark = pytest.mark.alone

NUM_MESSAGES = 20_000

SELDOM = {"not_enrolled", "wrong_name", "unsupported", "too_many_sessions", "too_many_prompt_logprobs",
          "draining", "failed", "not_acknowledged", "proposal", "too_large"}  # fmt: skip
"""Reasons that need keys, luck or a node that goes down; each has a test of its own."""


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    return live.run(NUM_MESSAGES, parts=2)


def test_honest_texts_are_the_targets_own(report) -> None:
    assert report["honest"]["wrong"] == []
    assert report["honest"]["num_exact"] >= 3 * live.NUM_CLIENTS * live.NUM_TEXTS


def test_each_message_is_accounted_for(report) -> None:
    """The counters of both sides agree: no more was received than sent, nor more refused and ignored than received."""
    assert report["num_sent"] >= NUM_MESSAGES
    assert sum(report["kinds"].values()) == report["num_sent"]
    assert min(report[name] for name in ("num_refused", "num_taken", "num_ignored", "num_lost")) >= 0
    assert report["num_lost"] < NUM_MESSAGES / 4  # on connections that were cut, before anybody read it


def test_refusals_are_counted_by_reason(report) -> None:
    missing = set(get_args(RefusalCode)) - SELDOM - set(report["refusals"])
    assert not missing
    told = sum(number for code, number in report["answers"].items() if code in get_args(RefusalCode))
    assert told <= report["num_refused"]


def test_memory_does_not_grow_with_messages(report) -> None:
    assert report["memory"]["growth_mib"] <= live.MAX_GROWTH_MIB, report["memory"]
