"""Random worlds with kept pages: hits happen, texts stay exact, and what is broken on purpose is found."""

from dataclasses import replace
from typing import Any

import pytest

from experiments.simulation.faults import play
from experiments.simulation.settings import Settings, with_faults
from goodspeed.engine.paged.prefix_cache import PrefixCache

REPEATING = Settings(num_clients=3, num_sessions=12, prompt_len=40, repeats=1.0, prefix_cache=True)
SCARCE = replace(REPEATING, num_pages=24, context_len=64, latency_s=(0.02,))
TINY = with_faults(SCARCE, cancel=0.3, cut_every_s=2.0, pause_s=0.5)


def test_prompts_that_repeat_are_found_and_texts_are_exact() -> None:
    world, found = play(1, REPEATING)
    assert found.what == []
    assert world.verify.num_cached > 100
    again, _ = play(1, replace(REPEATING, prefix_cache=False))
    assert again.verify.num_cached == 0


def _finds_any(cache: PrefixCache, digests: Any) -> list[int]:
    return list(cache._pages.values())[: len(digests)]


SABOTAGE = {
    "pages of other texts are found": ("find", _finds_any, "was delivered and not"),
    "those who share a page are not counted": ("hold", lambda cache, page: None, "counted"),
    "pages that are needed stay findable": ("withdraw", lambda cache, page: None, "one of them will write"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "broken", "what"), SABOTAGE.values(), ids=SABOTAGE)
def test_what_is_broken_on_purpose_is_found(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any, what: str) -> None:
    monkeypatch.setattr(PrefixCache, name, broken)
    said = [line for seed in range(4) for line in play(seed, TINY)[1].what]
    assert any(what in line for line in said)
