"""The end-to-end benchmark's requests and figures; no node and no model runs here."""

import asyncio
import contextlib
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.benchmarks.end_to_end import Comparison
from experiments.benchmarks.load import chats, ways
from experiments.benchmarks.load.ways import ByGoodSpeed, Nodes, Text, Written
from experiments.benchmarks.nodes.workers import Served, Wanted
from experiments.benchmarks.rivals.ours import Ours
from experiments.benchmarks.rivals.running import Written as Rated

NUM_CLIENTS = 8
TEXTS = [Text([number], seed=number) for number in range(8)]


@pytest.fixture
def asked(monkeypatch):
    """Returns what each worker is asked for, by its name; every text comes back as its seed."""
    asked: dict[str, list[Wanted]] = {}

    def serve_all(some_workers, lists):
        for worker, own in zip(some_workers, lists, strict=True):
            asked.setdefault(worker.name, []).extend(own)
        served = [
            [Served([one.seed], 4, 3, 0.1, {"model": 3, "self": 1}, {"model": 3}) for one in own] for own in lists
        ]
        return 1.0, served

    monkeypatch.setattr(ways, "serve_all", serve_all)
    return asked


def make_nodes(*, history: bool) -> Nodes:
    eight: list[Any] = [SimpleNamespace(name=f"m{number}") for number in range(NUM_CLIENTS)]
    others: list[Any] = [SimpleNamespace(name=name) for name in ("one", "plain")]
    return Nodes(eight, *(others if history else eight[:1] * 2))


def by_goodspeed(*, history: bool, turns: int = 2) -> ByGoodSpeed:
    return ByGoodSpeed(make_nodes(history=history), num_tokens=4, turns=turns, temperature=1.0)


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_with_a_history_no_node_is_asked_for_the_same_text_twice(asked, turns):
    served = by_goodspeed(history=True, turns=turns)
    for way in ways.SERVED:
        getattr(served, way)(TEXTS)
    for name, own in asked.items():
        seeds = [one.seed for one in own]
        assert len(seeds) == len(set(seeds)), name


def compare(temperature: float, num_rows: int, texts: dict[str, list[list[int]]]) -> tuple[Comparison, list[str]]:
    order: list[str] = []

    def way(name):
        def write(row):
            order.append(name)
            return [Written(*one) for one in enumerate(texts[name])]

        return write

    comparison = Comparison({name: way(name) for name in texts}, temperature)
    comparison.run([TEXTS] * num_rows)
    return comparison, order


@pytest.mark.parametrize(("temperature", "num_different"), [(0.0, 2), (1.0, 1)])
def test_texts_that_differ_are_counted(temperature, num_different):
    """At temperature 0 plain decoding is what they are compared with; else the first of GoodSpeed's own ways."""
    texts = {"plain": [[1], [2]], "goodspeed_1": [[1], [3]], "goodspeed_8": [[1], [3]]}
    if temperature:
        texts["goodspeed_8"] = [[9], [3]]
    assert compare(temperature, 1, texts)[0].num_different == num_different


def test_real_chats_have_a_ratio_for_each_drafter_number_and_temperature(monkeypatch):
    @contextlib.asynccontextmanager
    async def no_nodes(named, *verify_options, target, cores):
        started.append([options[1] for options in named])
        yield SimpleNamespace(urls=["http://127.0.0.1:1"] * len(named))

    def write(ours, request):
        per_s = 10.0 * request.at_once * (1.5 if ours._own["drafter"] is None else 1.0)
        own_s = [20 / per_s if ours._own["drafter"] is None else 20 / (per_s * 2)] * len(request.prompts)
        return Rated([[7] * 20 for _ in request.prompts], 20 * len(request.prompts) / per_s, own_s)

    started: list[list[str]] = []
    monkeypatch.setattr(chats, "http_nodes", no_nodes)
    monkeypatch.setattr(Ours, "write", write)
    asked = {"clients": 2, "texts": 2, "answer": 20, "repetitions": 2, "temperature": [0.0, 1.0], "busy": True}
    options = Namespace(drafters=["ngram", "same_size"], pin=False, draft=[], verify=[], **asked)
    found = asyncio.run(chats.measure(options, "tiny-target"))
    assert started == [["--model=none"] * 2, ["--model=smollm2"] * 2]
    assert len(found["never_worse"]) == 2 * 2 * 2
    assert found["never_worse"]["same_size, 2 at once, T=1"] == pytest.approx(1.5)
    assert found["own_speed"]["same_size, 2 at once, T=1"] == pytest.approx(0.75)
    assert found["tokens_per_s"]["ngram, 1 at once, T=0"] == pytest.approx([10.0, 15.0])
    ending = "1.50 (wanted: at least 0.95); a chat's own speed 0.75 times"
    assert all(line.endswith(ending) for line in chats.lines(found))
