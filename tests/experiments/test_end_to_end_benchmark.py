"""The end-to-end benchmark's requests and figures; no node and no model runs here."""

import asyncio
import contextlib
from argparse import Namespace
from types import SimpleNamespace

import pytest

from experiments.benchmarks.end_to_end import Comparison
from experiments.benchmarks.load import chats
from experiments.benchmarks.load.ways import Text, Written
from experiments.benchmarks.rivals.ours import Ours
from experiments.benchmarks.rivals.running import Written as Rated


@pytest.mark.parametrize(("temperature", "num_different"), [(0.0, 2), (1.0, 1)])
def test_texts_that_differ_are_counted(temperature, num_different):
    """At temperature 0 plain decoding is what they are compared with; else the first of GoodSpeed's own ways."""
    texts = {"plain": [[1], [2]], "goodspeed_1": [[1], [3]], "goodspeed_8": [[1], [3]]}
    if temperature:
        texts["goodspeed_8"] = [[9], [3]]
    written = {name: [Written(*one) for one in enumerate(own)] for name, own in texts.items()}
    comparison = Comparison({name: lambda row, name=name: written[name] for name in texts}, temperature)  # type: ignore[misc]
    comparison.run([[Text([0], 0), Text([1], 1)]])
    assert comparison.num_different == num_different


@pytest.fixture
def started(monkeypatch):
    """The `--model` of each draft node that was started; texts come at rates that drafts make 1.5 times as high."""

    @contextlib.asynccontextmanager
    async def no_nodes(named, *verify_options, target, cores):
        models.append([options[1] for options in named])
        yield SimpleNamespace(urls=["http://127.0.0.1:1"] * len(named))

    def write(ours, request):
        per_s = 10.0 * request.at_once * (1.5 if ours._own["drafter"] is None else 1.0)
        own_s = [20 / per_s if ours._own["drafter"] is None else 20 / (per_s * 2)] * len(request.prompts)
        return Rated([[7] * 20 for _ in request.prompts], 20 * len(request.prompts) / per_s, own_s)

    models: list[list[str]] = []
    monkeypatch.setattr(chats, "http_nodes", no_nodes)
    monkeypatch.setattr(Ours, "write", write)
    return models


ASKED = {"at_once": [1, 2], "prompts": None, "texts": 2, "answer": 20, "repetitions": 2, "temperature": [0.0, 1.0]}


def ask(**changes):
    options = Namespace(pin=False, draft=[], verify=[], busy=True, **{**ASKED, "drafters": ["ngram"], **changes})
    return asyncio.run(chats.measure(options, "tiny-target"))


def test_real_chats_have_a_ratio_for_each_drafter_number_and_temperature(started):
    found = ask(drafters=["ngram", "same_size"])
    assert started == [["--model=none"] * 2, ["--model=smollm2"] * 2]
    assert len(found["never_worse"]) == 2 * 2 * 2
    assert found["never_worse"]["same_size, 2 at once, T=1"] == pytest.approx(1.5)
    assert found["own_speed"]["same_size, 2 at once, T=1"] == pytest.approx(0.75)
    assert found["tokens_per_s"]["ngram, 1 at once, T=0"] == pytest.approx([10.0, 15.0])
    ending = "1.50 (wanted: at least 0.95); a chat's own speed 0.75 times"
    assert all(line.endswith(ending) for line in chats.lines(found))


def test_questions_of_a_folder_have_a_ratio_for_each_domain(started, tmp_path):
    for domain in ("code", "qa"):
        (tmp_path / f"{domain}.jsonl").write_text('{"id": "1", "turns": ["Why?"]}\n' * 3)
    (tmp_path / "long.jsonl").write_text(f'{{"id": "1", "turns": ["{"a " * chats.MOST_LETTERS}"]}}\n')
    found = ask(prompts=tmp_path, at_once=[4], temperature=[1.0])
    assert started == [["--model=none"] * 4]
    assert [*found["never_worse"]] == ["ngram, code, 4 at once, T=1", "ngram, qa, 4 at once, T=1"]
