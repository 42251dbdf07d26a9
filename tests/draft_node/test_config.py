"""Settings of a draft node that belong together, or do not; every refusal says what to do."""

from dataclasses import replace

import pytest

from draft_node.cli import build_parser
from draft_node.config import DraftConfig
from goodspeed.errors import ConfigError
from goodspeed.serving.config import from_namespace

BARE = ("--model", "none", "--tokenizer", "tiny-target")
MODEL = ("--model", "tiny-draft-s")
GGUF = ("--model", "x.gguf")
SOURCE = ("--model", "source:mine:Mine", "--tokenizer", "tiny-target")
SERVER = ("--model", "http://127.0.0.1:8080", "--tokenizer", "tiny-target")
HTTP = ("--http", "127.0.0.1:0")
PAPER = (*MODEL, "--preset", "paper")
ITSELF = "or give the draft model itself"
OF_HTTP = {"--api-key": "keys", "--served-model-name": "x", "--tool-parser": "hermes", "--reasoning-parser": "none"}
OF_HTTP |= {"--chat-template-kwargs": '{"a": false}'}


def parsed(*words: str) -> DraftConfig:
    return from_namespace(DraftConfig, build_parser().parse_args(list(words)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "none"), "--model none needs --tokenizer NAME|FOLDER|FILE"),
        (
            (*MODEL, "--tokenizer", "tiny-target"),
            "and source:NAME; the model tiny-draft-s brings its own tokenizer, so leave it out; a draft source",
        ),
        (
            ("--model", "./mine.py:Mine", "--tokenizer", "tiny-target"),
            "there is no model ./mine.py:Mine; for a draft source say --model source:./mine.py:Mine",
        ),
        ((*BARE, "--device", "cuda"), "--device needs a draft model; leave it out, or give a model with --model"),
        ((*BARE, "--dtype", "bfloat16"), "--dtype needs"),
        ((*BARE, "--memory-fraction", "0.5"), "--memory-fraction needs"),
        ((*BARE, "--threads", "2"), "--threads needs"),
        ((*BARE, "--preset", "paper"), "--preset needs"),
        ((*BARE, "--drafter", "model"), "--drafter model needs a draft model; give one with --model"),
        ((*SOURCE, "--dtype", "bfloat16"), "--dtype is not for a draft source; leave it out"),
        ((*SOURCE, "--verification", "ratio"), "whole distribution, which a draft source does not give"),
        ((*SOURCE, "--threads", "2"), "--threads is not for a draft source; leave it out"),
        (SOURCE[:2], "--model source:mine:Mine needs --tokenizer NAME|FOLDER|FILE, the target's"),
        (SERVER[:2], "--model http://... needs --tokenizer NAME|FOLDER|FILE, the target's"),
        (("--model", "http://user:password@host"), "--model http://... needs --tokenizer NAME|FOLDER|FILE"),
        ((*SERVER, "--dtype", "bfloat16"), f"--dtype is not for llama.cpp's server; leave it out, {ITSELF}"),
        ((*SERVER, "--preset", "paper"), "--preset is not for llama.cpp's server"),
        ((*SERVER, "--verification", "ratio"), "needs the draft model's whole distribution"),
        ((*SERVER, "--threads", "2"), f"--threads is not for llama.cpp's server; start llama-server with it, {ITSELF}"),
        ((*PAPER, "--drafter", "ngram"), "--preset paper has --drafter model; drop one of them"),
        ((*PAPER, "--drafter", "auto"), "--preset paper has --drafter model; drop one of them"),
        ((*PAPER, "--verification", "match"), "--preset paper has --verification ratio; drop one of them"),
        ((*MODEL, "--preset", "x"), "choose one of: paper"),
        ((*MODEL, "--served-model-name", ""), "--served-model-name"),
        ((*MODEL, "--sampling", "temperature"), "--sampling temperature: 'temperature' is not NAME=VALUE"),
        ((*MODEL, "--sampling", "temperature=1", "--temperature", "1"), "--temperature and --sampling both set"),
        ((*MODEL, "--history", "user"), "--history user needs --api-key FILE"),
        ((*MODEL, "--history", "all"), "choose one of: off, user, node"),
        ((*MODEL, "--drafter", "x"), "choose one of: auto, model, ngram, none"),
        ((*MODEL, *HTTP, "--prompts", "x"), "--prompts is for prompts"),
        ((*MODEL, *HTTP, "--temperature", "0"), "--temperature is for prompts"),
        *(((*MODEL, flag, value), f"{flag} is for requests over HTTP; give --http") for flag, value in OF_HTTP.items()),
        ((*MODEL, "--refuse-control-tokens"), "--refuse-control-tokens is for requests over HTTP; give --http"),
        ((*MODEL, *HTTP, "--chat-template-kwargs", "{"), "--chat-template-kwargs must be a JSON object"),
        ((*MODEL, *HTTP, "--chat-template-kwargs", "[]"), "--chat-template-kwargs must be a JSON object"),
    ],
)
def test_settings_that_contradict(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(*words)
    assert message in str(error.value)


def test_a_node_without_a_model_or_with_one() -> None:
    assert not parsed(*BARE).has_model
    assert parsed(*MODEL).has_model
    assert parsed("--model", "./none").has_model  # the folder of that name
    assert parsed(*SERVER, "--drafter", "model").is_url
    loading = [parsed(*words).has_weights for words in (BARE, MODEL, GGUF, SERVER, SOURCE)]
    assert loading == [False, True, True, False, False]
    assert parsed(*GGUF, "--tokenizer", "tiny-target").tokenizer == "tiny-target"  # else its own
    paper = parsed(*GGUF, "--preset", "paper", "--threads", "2", "--memory-fraction", "0.1")
    assert (paper.is_url, paper.verification, paper.threads) == (False, "ratio", 2)


def test_the_paper_by_one_switch() -> None:
    config = parsed(*PAPER)
    assert (config.verification, config.proposal, config.drafter) == ("ratio", "dense-fp32", "model")
    assert replace(config, name="ana").verification == "ratio"
    assert parsed(*PAPER, "--verification", "ratio") == config


def test_the_history_is_each_users_own_wherever_there_are_keys() -> None:
    assert (parsed(*BARE).whose_history, parsed(*BARE).history_tokens) == ("node", 1_000_000)
    keyed = (*BARE, *HTTP, "--api-key", "keys")
    assert parsed(*keyed).whose_history == "user"
    assert parsed(*keyed, "--history", "node").whose_history == "node"
