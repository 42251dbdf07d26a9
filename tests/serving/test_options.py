"""Options that several commands share: the same words everywhere, and checked wherever they come from."""

import argparse

import pytest

from draft_node.config import DraftConfig
from goodspeed.app.generate import GenerateConfig
from goodspeed.app.profile import ProfileConfig
from goodspeed.errors import ConfigError
from goodspeed.serving.config import Settings, add_options, from_namespace
from verify_node.config import VerifyConfig


def make(settings: type[Settings], **changes: object) -> Settings:
    own = {"model": "m"} | ({"prompt": "p"} if settings is GenerateConfig else {})
    return settings(**own | changes)


@pytest.mark.parametrize("settings", [VerifyConfig, DraftConfig, GenerateConfig, ProfileConfig])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "tpu"}, r"--device 'tpu' is unknown; it must be cpu, cuda, or cuda:INDEX"),
        ({"dtype": "int8"}, r"--dtype 'int8' is unknown; choose one of: auto, float32, bfloat16, float16"),
        ({"threads": 0}, r"--threads 0 is too small; it must be at least 1"),
    ],
)
def test_every_command_with_a_model_checks_where_it_runs(settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        make(settings, **changes)


def test_a_field_without_an_option_is_set_by_code_only():
    parser = argparse.ArgumentParser()
    add_options(parser, VerifyConfig)
    namespace = parser.parse_args(["--model", "m"])
    assert "--kv-pages" not in parser.format_help()
    assert not hasattr(namespace, "kv_pages")
    assert from_namespace(VerifyConfig, namespace).kv_pages is None
    assert VerifyConfig(model="m", kv_pages=3).kv_pages == 3


@pytest.mark.parametrize(
    ("settings", "other", "words"),
    [(VerifyConfig, "enrolled", "--enrolled FOLDER"), (DraftConfig, "verify_key", "--verify-key FILE")],
)
def test_a_node_has_both_keys_or_neither_and_then_trusts_no_network(settings, other, words):
    for half in ({"key": "k"}, {other: "o"}):
        with pytest.raises(ConfigError, match=f"--key FILE needs {words}"):
            make(settings, **half)
    make(settings, **{"key": "k", other: "o"})
    make(settings, trusted_network=True)
    with pytest.raises(ConfigError, match="--trusted-network is for a wire without keys"):
        make(settings, **{"key": "k", other: "o"}, trusted_network=True)


def test_an_option_may_be_given_several_times_or_never():
    parser = argparse.ArgumentParser()
    add_options(parser, DraftConfig)
    words = ["--model", "m", "--served-model-name", "a", "--served-model-name", "b", "--http", "localhost:0"]
    assert from_namespace(DraftConfig, parser.parse_args(words)).served_model_name == ("a", "b")
    assert from_namespace(DraftConfig, parser.parse_args(words[:2])).served_model_name == ()
