"""The benchmark beside other engines: who runs, who is missing and why, and what comes of it; no engine runs here."""

import asyncio
from dataclasses import replace
from functools import partial

from experiments.benchmarks.rivals import catalogue
from experiments.benchmarks.rivals.catalogue import RIVALS
from experiments.benchmarks.rivals.files import Files
from experiments.benchmarks.rivals.results import Turns, Way, summary, table
from experiments.benchmarks.rivals.running import RivalFailed, Written
from experiments.benchmarks.rivals.worker import Request

REQUEST = Request([[1], [2], [3]], [10, 20, 30], at_once=2, temperature=0.5, max_tokens=4, end_ids=[9])


def test_ratios_are_of_medians_and_of_the_best():
    rates = {
        "engine": {"1": [90.0, 10.0, 100.0], "8": [300.0]},
        "genai": {"1": [100.0, 120.0, 60.0], "8": [400.0]},
        "llama": {"1": [80.0], "8": [100.0]},
        "goodspeed": {"1": [50.0], "8": [500.0]},
        "goodspeed_ngram": {"1": [150.0], "8": [250.0]},
    }
    found = summary(rates)
    assert found["tokens_per_s"]["genai"] == {"1": 100.0, "8": 400.0}
    assert found["engine"] == {"1": 0.9, "8": 0.75}
    assert found["ngram"] == {"1": 3.0, "8": 0.5}
    assert (found["ratio_1"], found["ratio_8"]) == (1.5, 1.25)
    lines = [" ".join(line.split()) for line in table(rates, found, "_both")]
    assert "engine 1 at once 90.0 (10.0 to 100.0) 8 at once 300.0 (300.0 to 300.0)" in lines
    assert "engine_both, 8 at once 0.75 (wanted: at least 0.9)" in lines


def test_all_ways_take_turns_and_one_that_fails_leaves_with_its_reason():
    asked = []

    def write(way: str, request: Request) -> Written:
        asked.append((way, request.at_once, len(request.prompts)))
        if way == "c" and asked.count(asked[-1]) > 1:
            raise RivalFailed("no memory")
        return Written([[1, 2]] * len(request.prompts), 2.0)

    ways: dict[str, Way] = {way: partial(write, way) for way in "abc"}
    turns = Turns(ways, {}, {"1": 1, "8": 3})
    warm_up = replace(REQUEST, prompts=[[7]] * 3, seeds=[0] * 3)
    asyncio.run(turns.measure(REQUEST, warm_up, 2))
    assert asked[:6] == [(way, n, n) for n in (1, 3) for way in "abc"]  # warming up
    assert [way for way, *_ in asked[6:12]] == ["b", "c", "a", "b", "c", "a"]
    assert turns.missing == {"c": "it failed: no memory"}
    assert turns.rates == {way: {"1": [3.0, 3.0], "8": [3.0, 3.0]} for way in "ab"}


def test_a_rival_without_its_environment_says_what_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", environments := tmp_path / ".peers")
    [genai] = [rival for rival in RIVALS if rival.way == "genai"]
    assert genai.missing(Files()) == "the environment .peers/genai is not there; `make peers` makes it"
    (environments / "genai").mkdir(parents=True)
    assert genai.missing(Files()) == "the environment .peers/genai was not completed; `make peers` says why"
    (environments / "genai/.ready").touch()
    assert genai.missing(Files()) is None
    assert genai.python == environments / "genai/bin/python"
