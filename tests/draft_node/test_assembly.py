"""A node without a model reads its history file and its corpora when it is built, and says so."""

import gc
import os
from pathlib import Path

import pytest

from draft_node.config import DraftConfig
from draft_node.core.actions import Connected
from draft_node.core.drafts.ngrams import Ngrams
from draft_node.core.generation import Generation
from draft_node.process import assembly
from draft_node.process.preflight import check
from goodspeed.app.demo.options import QUESTIONS
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.errors import CheckpointError, ConfigError
from goodspeed.ngram import history_file
from goodspeed.ngram.history import History
from goodspeed.wire.handshake import VERSION, Welcome
from goodspeed.wire.messages import Sampling
from tests import chats, gguf_files
from tests.memory_network import MemoryNetwork

VOCABULARY = tokenizer_folder.load("tiny-target")
BOOT = b"aaaaaaaa"


def build(**settings) -> tuple[Ngrams, list[str]]:
    """Returns what n-grams come from, and what was told."""
    told: list[str] = []
    config = DraftConfig(model="none", tokenizer="tiny-target", **settings)
    line = MemoryNetwork().connect_draft(BOOT)
    daemon = assembly.build(config, VOCABULARY, line, BOOT, lambda what, *values: told.append(what % values))
    assert daemon.core.ngrams is not None
    return daemon.core.ngrams, told


def test_a_node_without_a_model_says_so() -> None:
    line = MemoryNetwork().connect_draft(BOOT)
    daemon = assembly.build(DraftConfig(model="none", tokenizer="tiny-target"), VOCABULARY, line, BOOT)
    assert daemon.link.hello.draft_model == ""


@pytest.mark.parametrize(("model", "num_parallel"), [("tiny-draft-s", 1), ("tiny-draft-p", 8)])
def test_sessions_know_how_much_the_model_drafts_in_one_pass(model: str, num_parallel: int) -> None:
    config = DraftConfig(model=model)
    line = MemoryNetwork().connect_draft(BOOT)
    daemon = assembly.build(config, assembly.load(config), line, BOOT)
    request = Generation(bytes(16), (1, 2), Sampling(), max_tokens=5)
    daemon.core.begin(request, 0.0)
    assert daemon.core.sessions[request.session_id].num_parallel == num_parallel


def test_a_gguf_file_drafts_with_its_own_tokenizer_or_with_the_targets(tmp_path: Path) -> None:
    file = gguf_files.made("tiny-draft-s")
    assert assembly.load(DraftConfig(model=file)).tokenizer_fingerprint == VOCABULARY.tokenizer_fingerprint
    padded = tokenizer_folder.load("tiny-target").tokenizer
    padded.add_special_tokens({"pad_token": "[PAD]"})
    padded.save_pretrained(tmp_path)
    named = tokenizer_folder.load(str(tmp_path))
    assert named.num_tokens == VOCABULARY.num_tokens + 1
    loaded = assembly.load(DraftConfig(model=file, tokenizer=str(tmp_path)))
    assert loaded.tokenizer_fingerprint == named.tokenizer_fingerprint != VOCABULARY.tokenizer_fingerprint
    assert loaded.num_tokens == VOCABULARY.num_tokens  # the model has no row for the added token


def test_a_gguf_file_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    chats.save(tmp_path)
    config = DraftConfig(model=gguf_files.made("tiny-draft-s"), tokenizer=str(tmp_path))
    with pytest.raises(CheckpointError, match=f"tiny-draft-s.gguf has another tokenizer than --tokenizer {tmp_path}; "):
        assembly.load(config)


def test_the_model_drafts_within_the_vocabularies_of_both_models() -> None:
    config = DraftConfig(model="tiny-draft-s")
    daemon = assembly.build(config, assembly.load(config), MemoryNetwork().connect_draft(BOOT), BOOT)
    for targets, shared in ((100, 100), (5000, VOCABULARY.num_tokens)):
        daemon._connected(Connected(Welcome(VERSION, BOOT, "t", targets, 200, 1 << 20, 1.0, 6.0)))
        assert daemon.drafter.num_tokens == shared


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("Once upon a time there was a goose.")
    return str(folder)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The file of a node without keys."""
    history = History(100, per_user=False, tokenizer=VOCABULARY.tokenizer_fingerprint)
    history.add("", range(20))
    history_file.write(tmp_path / "history", history.contents())
    return str(tmp_path / "history")


def test_a_corpus_drafts_for_everybody(corpus: str) -> None:
    ngrams, told = build(corpus=(corpus,), history="off")
    (index,) = ngrams.history.indexes("ana")
    assert index is ngrams.history.shared[0]
    assert index.num_tokens == len(VOCABULARY.tokenizer("Once upon a time there was a goose.")["input_ids"])
    assert told == [f"reading {corpus} ...", f"--corpus {corpus}: {index.num_tokens} tokens in 1 files"]


def test_a_history_file_is_taken_up(saved: str) -> None:
    ngrams, told = build(history_file=saved)
    assert ngrams.history.num_tokens == 20
    assert told == [f"--history-file {saved}: 1 texts, 20 tokens"]


def test_a_history_file_is_one_node_s(saved: str) -> None:
    left = Path(saved).with_name(".history.0123456789abcdef")
    left.touch()
    config = DraftConfig(model="none", tokenizer="tiny-target", history_file=saved, prompts=str(QUESTIONS))
    daemon = assembly.build(config, VOCABULARY, MemoryNetwork().connect_draft(BOOT), BOOT)
    assert not left.exists()
    for refused in (lambda: build(history_file=saved), lambda: check(config)):
        with pytest.raises(ConfigError, match="another draft node uses it; give each node a file of its own"):
            refused()
    del daemon  # a node that is given up before it serves
    gc.collect()
    check(config)


def test_neither_is_nothing_to_tell() -> None:
    ngrams, told = build()
    assert (ngrams.history.indexes("ana"), told) == ([], [])


def test_texts_for_all_are_not_handed_to_users_with_keys(saved: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    with pytest.raises(ConfigError, match="keeps texts for all users together, unlike this node; delete it"):
        build(history_file=saved, http="127.0.0.1:0", api_key=str(keys))


def test_the_file_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    history_file.write(tmp_path / "history", History(100, per_user=False, tokenizer="another").contents())
    for _ in range(2):  # a node that could not be built holds no file
        with pytest.raises(ConfigError, match="was written with another tokenizer"):
            build(history_file=str(tmp_path / "history"))
    assert [one.name for one in tmp_path.iterdir()] == ["history"]


@pytest.mark.parametrize(
    ("name", "why"), [("damaged", "is damaged: .*; delete it, or give another path"), ("no/file", "there is no folder")]
)
def test_a_file_that_cannot_be_had_is_found_before_anything_is_loaded(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"x")
    path = tmp_path / name
    with pytest.raises(ConfigError, match=f"{path}.* {why}"):
        check(DraftConfig(model="none", tokenizer="tiny-target", history_file=str(path)))
    assert [one.name for one in tmp_path.iterdir()] == ["damaged"]


def test_a_folder_that_cannot_be_written_to_is_found_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path or not mode & os.W_OK)
    with pytest.raises(ConfigError, match=f"--history-file {tmp_path}/x: {tmp_path} cannot be written to"):
        check(DraftConfig(model="none", tokenizer="tiny-target", history_file=str(tmp_path / "x")))
