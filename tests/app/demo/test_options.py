"""The clients of a demo: prompts, seeds and draft models dealt out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draft_node.cli import build_parser
from draft_node.config import DraftConfig
from goodspeed.app import cli
from goodspeed.app.demo.nodes import draft_command, verify_command
from goodspeed.app.demo.options import DRAFT_NODE_BYTES, DemoConfig, clients
from goodspeed.embedded import prompts
from goodspeed.engine import host_memory
from goodspeed.errors import ConfigError, GoodSpeedError
from goodspeed.serving.config import from_namespace
from goodspeed.untrusted import python_module
from tests import gguf_files
from training import domains

NUM_OF_PYTHON = len(python_module("draft_node"))
"""Words of a command before the draft node's own."""


def test_by_default_every_domain_comes_once() -> None:
    dealt = clients(DemoConfig())
    assert [client.domain for client in dealt] == list(domains.NAMES)
    assert [client.prompt.text for client in dealt] == [prompt.prompt for prompt in prompts.demo()]
    assert {client.prompt.seed for client in dealt} == {0}
    assert {client.prompt.seed for client in clients(DemoConfig(seed=7))} == {7}  # shipped prompts bring no seeds
    assert [client.draft_model for client in dealt] == ["tiny-draft-s", "tiny-draft-m"] * 4
    assert len({client.name for client in dealt}) == 8


def test_lines_come_again_and_their_seeds_go_before_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"prompt": "one", "seed": 0}, {"prompt": "two", "domain": "x"}])))
    dealt = clients(DemoConfig(clients=3, prompts=str(file), seed=9, draft_models=" m "))
    assert [(client.prompt.text, client.prompt.seed) for client in dealt] == [("one", 0), ("two", 9), ("one", 0)]
    assert {client.draft_model for client in dealt} == {"m"}
    assert "3 clients share 2 prompts" in capsys.readouterr().err


def test_the_preset_is_one_switch_for_both_nodes() -> None:
    config = DemoConfig(preset="paper", clients=1)
    (client,) = clients(config)
    own = draft_command(config, client, "tcp://127.0.0.1:1", "info")[NUM_OF_PYTHON:]
    drafting = from_namespace(DraftConfig, build_parser().parse_args([word for word in own if word != "--json"]))
    assert (drafting.verification, drafting.proposal, drafting.drafter) == ("ratio", "dense-fp32", "model")
    assert "--preset=paper" in verify_command(config, "info")
    assert not any("preset" in word for word in verify_command(DemoConfig(), "info"))
    assert config.rounds == "barrier"
    with pytest.raises(ConfigError, match="--preset paper has --drafters model; drop one of them"):
        DemoConfig(preset="paper", drafters="ngram")


def test_a_recording_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (old := tmp_path / "old").write_text("mine")
    for path in (tmp_path, old / "x", tmp_path / ("n" * 300)):
        with pytest.raises(
            ConfigError, match=r"--record .* is no folder|cannot be written to .*; choose another place"
        ):
            DemoConfig(record=str(path)).check()
    for path in (old, tmp_path / "new"):
        DemoConfig(record=str(path)).check()
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_text() == "mine"


def test_more_draft_nodes_than_the_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 10 * DRAFT_NODE_BYTES)
    DemoConfig(clients=10).check()
    with pytest.raises(ConfigError, match=r"--clients 1000: so many processes take 167\.8 GB of memory or more, "):
        DemoConfig(clients=1000).check()
    with pytest.raises(ConfigError, match=r"and 1\.7 GB are available; ask for at most 10$"):
        DemoConfig(clients=11).check()
    DemoConfig(clients=11, drafters="ngram").check()
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 1)
    DemoConfig().check()  # the first command that README shows
    with pytest.raises(ConfigError, match=r"ask for at most 8$"):
        DemoConfig(clients=9).check()


def test_over_http_temperatures_end_at_2() -> None:
    DemoConfig(temperature=3.0).check()
    DemoConfig(temperature=2.0, http=True).check()
    with pytest.raises(ConfigError, match="--temperature 3: over HTTP it is 2 at most"):
        DemoConfig(temperature=3.0, http=True).check()


@pytest.mark.parametrize("drafters", ["ngram", "both"])
def test_draft_nodes_without_models_have_the_targets_tokenizer(drafters: str) -> None:
    config = DemoConfig(drafters=drafters, clients=2)
    config.check()
    for client in clients(config):
        words = draft_command(config, client, "tcp://127.0.0.1:1", "info")
        own = [word for word in words[NUM_OF_PYTHON:] if word != "--json"]
        parsed = from_namespace(DraftConfig, build_parser().parse_args(own))  # nothing that needs a model is among them
        assert parsed.model == client.draft_model
        assert parsed.tokenizer == (None if parsed.has_model else "tiny-target")


def test_draft_nodes_with_a_gguf_file_or_a_server_have_the_targets_tokenizer(tmp_path: Path) -> None:
    (file := tmp_path / "x.gguf").write_bytes(gguf_files.content())
    config = DemoConfig(draft_models=f"{file},http://127.0.0.1:8080,tiny-draft-s", model="tiny-target", clients=3)
    config.check()
    config.find_draft_models(print)
    parsed = []
    for client in clients(config):
        words = draft_command(config, client, "tcp://127.0.0.1:1", "info")
        own = [word for word in words[NUM_OF_PYTHON:] if word != "--json"]
        parsed.append(from_namespace(DraftConfig, build_parser().parse_args(own)))
    assert [each.tokenizer for each in parsed] == ["tiny-target", "tiny-target", None]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"draft_models": "nosuch"}, "model 'nosuch' was not found"),
        ({"draft_models": "nosuch.gguf"}, r"nosuch.gguf: it cannot be read \(No such file or directory\); give"),
        ({"draft_models": "x.gguf", "model": "some/hub-name"}, "--model some/hub-name: .* x.gguf need the target's"),
        ({"drafters": "ngram", "model": "some/hub-name"}, "--drafters ngram need the target's tokenizer, and there is"),
        ({"drafters": "ngram", "model": "nosuch.gguf"}, r"^nosuch.gguf: it cannot be read"),
    ],
)
def test_what_draft_nodes_would_miss_is_told_before_a_node_starts(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(GoodSpeedError, match=why):
        replace(DemoConfig(model="tiny-target"), **changes).find_draft_models(print)


@pytest.mark.parametrize("changes", [{"preset": "paper"}, {"verification": "ratio"}, {"proposal": "dense-fp16"}])
def test_only_a_server_gives_no_distributions(changes: dict[str, Any]) -> None:
    flag, server = next(iter(changes)), "http://127.0.0.1:8080"
    with pytest.raises(ConfigError, match=f"--draft-models {server}: llama.cpp's server .* that --{flag}.*; drop one"):
        DemoConfig(draft_models=server, **changes).check()
    DemoConfig(draft_models="x.gguf", **changes).check()


def test_a_comparison_is_refused_where_one_of_its_runs_would_fail() -> None:
    namespace = cli.build_parser().parse_args(["demo", "--compare", "--draft-models", "http://localhost"])
    with pytest.raises(ConfigError, match=r"--draft-models http://localhost: .* that --preset paper needs"):
        namespace.subcommand.run(namespace)


@pytest.mark.parametrize("changes", [{"draft_models": "x"}, {"proposal": "dense-fp16"}])
def test_what_is_for_draft_models_is_refused_without_them(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"--{next(iter(changes)).replace('_', '-')} is for draft models"):
        DemoConfig(drafters="ngram", **changes).check()
    DemoConfig(**changes).check()
