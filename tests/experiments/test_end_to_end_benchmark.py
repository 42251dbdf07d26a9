"""The end-to-end benchmark's requests and figures; no node and no model runs here."""

import asyncio
import contextlib
from argparse import Namespace
from collections import Counter
from types import SimpleNamespace

import pytest

from experiments.benchmarks import end_to_end
from experiments.benchmarks.end_to_end import Comparison, drafts, ratios
from experiments.benchmarks.load import chats, held_out_texts, ways
from experiments.benchmarks.load.ways import ByGoodSpeed, Nodes, Text, Written
from experiments.benchmarks.nodes import workers
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
    def named(*names):
        return [SimpleNamespace(name=name) for name in names]

    eight = named(*(f"m{number}" for number in range(NUM_CLIENTS)))
    without = named(*(f"n{number}" for number in range(NUM_CLIENTS)))
    [one, plain, one_without] = named("one", "plain", "one-n") if history else [eight[0], eight[0], without[0]]
    return Nodes(eight, one, plain, without, one_without)


def by_goodspeed(*, history: bool, turns: int = 2) -> ByGoodSpeed:
    return ByGoodSpeed(make_nodes(history=history), num_tokens=4, turns=turns, temperature=1.0)


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_with_a_history_no_node_is_asked_for_the_same_text_twice(asked, turns):
    served = by_goodspeed(history=True, turns=turns)
    for way in (*ways.SERVED, *ways.NO_MODELS):
        getattr(served, way)(TEXTS)
    for name, own in asked.items():
        seeds = [one.seed for one in own]
        assert len(seeds) == len(set(seeds)), name


def test_each_way_writes_every_text(asked):
    served = by_goodspeed(history=True)
    for way in (*ways.SERVED, *ways.NO_MODELS):
        written = getattr(served, way)(TEXTS)
        per_text = 2 if "_8" in way else 1
        assert Counter(one.number for one in written) == dict.fromkeys(range(8), per_text)
        assert all(one.tokens == [one.number] for one in written)


def test_only_ways_without_speculation_ask_for_no_drafts(asked):
    served = by_goodspeed(history=True)
    for way in (*ways.SERVED, *ways.NO_MODELS):
        asked.clear()
        getattr(served, way)(TEXTS)
        has_drafts = {one.max_draft > 0 for own in asked.values() for one in own}
        assert has_drafts == {not way.endswith("_no_speculation")}


def test_everybody_who_drafts_is_given_the_same_history(asked):
    served = by_goodspeed(history=True)
    rows = [[Text([row], seed=100 * row + number) for number in range(8)] for row in range(3)]
    served.give_history(rows)
    every = {text.seed for row in rows for text in row}
    names = {*(f"m{number}" for number in range(8)), *(f"n{number}" for number in range(8)), "one", "one-n"}
    assert asked.keys() == names
    assert all({one.seed for one in own} == every for own in asked.values())
    assert not served.num_drafted  # it is not measured


def test_drafts_are_counted_by_way_and_by_source(asked):
    served = by_goodspeed(history=False)
    served.goodspeed_1(TEXTS)
    assert drafts(served) == {
        "drafted": {"goodspeed_1": {"all": 32, "model": 24, "self": 8}},
        "accepted": {"goodspeed_1": {"all": 24, "model": 24}},
        "draft_acceptance_rate": {"goodspeed_1": 0.75},
    }


def test_prompts_differ_between_repetitions_and_from_the_history():
    rows = held_out_texts.measured(6) + held_out_texts.earlier(3, 6)
    texts = [one.prompt for row in rows for one in row]
    assert len(set(texts)) == len(texts) == 9 * 8
    assert len({one.seed for row in rows for one in row}) == 9 * 8
    assert all([one.domain for one in row] == [one.domain for one in rows[0]] for row in rows)


def test_more_repetitions_than_prompts_are_refused():
    with pytest.raises(ValueError, match="--repetitions 15 at most"):
        held_out_texts.measured(17)


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


def test_each_repetition_begins_with_another_way_and_the_first_one_is_left_out():
    comparison, order = compare(1.0, 3, {"plain": [[1]], "goodspeed_1": [[1]], "goodspeed_8": [[1]]})
    assert [order[0], order[3], order[6]] == ["plain", "goodspeed_1", "goodspeed_8"]
    assert Counter(order) == {"plain": 3, "goodspeed_1": 3, "goodspeed_8": 3}
    assert {len(rates) for rates in comparison.result()["repetitions"].values()} == {2}


@pytest.mark.parametrize(("temperature", "num_different"), [(0.0, 2), (1.0, 1)])
def test_texts_that_differ_are_counted(temperature, num_different):
    """At temperature 0 plain decoding is what they are compared with; else the first of GoodSpeed's own ways."""
    texts = {"plain": [[1], [2]], "goodspeed_1": [[1], [3]], "goodspeed_8": [[1], [3]]}
    if temperature:
        texts["goodspeed_8"] = [[9], [3]]
    assert compare(temperature, 1, texts)[0].num_different == num_different


def test_ratios_are_over_the_best_rival_and_only_where_all_ran():
    median = {"plain": 2.0, "assisted": 4.0, "prompt_lookup": 5.0, "goodspeed_1": 10.0, "goodspeed_8": 20.0}
    assert ratios(median) == {"ratio_1": 2.0, "ratio_8_sequential": 5.0}
    more = {"plain_8": 40.0, "goodspeed_8_no_speculation": 10.0, "goodspeed_8_no_model": 60.0}
    assert ratios(median | more)["ratio_8"] == 0.5
    assert ratios(median | more)["ratio_8_no_model"] == 1.5


def test_another_process_computes_while_it_is_wanted_and_no_longer(monkeypatch):
    ended = []

    def end(process):
        assert process.poll() is None
        ended.append(process)
        workers.end(process)

    monkeypatch.setattr(end_to_end, "end", end)
    with end_to_end.somebody_else(is_busy=True):
        assert not ended
    [process] = ended
    assert process.returncode is not None
    with end_to_end.somebody_else(is_busy=False):
        pass
    assert len(ended) == 1


@pytest.mark.parametrize("turns", ["0", "5"])
def test_a_client_is_never_asked_for_more_texts_than_there_are(turns, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["end_to_end", "--turns", turns])
    with pytest.raises(SystemExit):
        end_to_end.parse()
    assert "--turns must be from 1 to 4" in capsys.readouterr().err


def test_real_chats_have_a_ratio_for_each_drafter_number_and_temperature(monkeypatch):
    @contextlib.asynccontextmanager
    async def no_nodes(named, *verify_options, target, cores):
        started.append([options[1] for options in named])
        yield SimpleNamespace(urls=["http://127.0.0.1:1"] * len(named))

    def write(ours, request):
        per_s = 10.0 * request.at_once * (1.5 if ours._own["speculate"] else 1.0)
        return Rated([[7] * 20 for _ in request.prompts], 20 * len(request.prompts) / per_s)

    started: list[list[str]] = []
    monkeypatch.setattr(chats, "http_nodes", no_nodes)
    monkeypatch.setattr(Ours, "write", write)
    asked = {"clients": 2, "texts": 2, "answer": 20, "repetitions": 2, "temperature": [0.0, 1.0], "busy": True}
    options = Namespace(drafters=["ngram", "same_size"], pin=False, draft=[], verify=[], **asked)
    found = asyncio.run(chats.measure(options, "tiny-target"))
    assert started == [["--model=none"] * 2, ["--model=smollm2"] * 2]
    assert len(found["never_worse"]) == 2 * 2 * 2
    assert found["never_worse"]["same_size, 2 at once, T=1"] == pytest.approx(1.5)
    assert found["tokens_per_s"]["ngram, 1 at once, T=0"] == pytest.approx([10.0, 15.0])
    assert all(line.endswith("1.50 (wanted: at least 0.95)") for line in chats.lines(found))
