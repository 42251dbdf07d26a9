"""A draft node is built from its settings, with a model or without one."""

from pathlib import Path

import pytest

from draft_node.config import DraftConfig
from draft_node.core.actions import Connected
from draft_node.core.generation import Generation
from draft_node.process import assembly
from draft_node.process.daemon import DraftDaemon
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.errors import CheckpointError
from goodspeed.wire.handshake import VERSION, Welcome
from goodspeed.wire.messages import Sampling
from tests import chats, gguf_files
from tests.memory_network import MemoryNetwork

VOCABULARY = tokenizer_folder.load("tiny-target")
BOOT = b"aaaaaaaa"


def built(config: DraftConfig) -> DraftDaemon:
    return assembly.build(config, assembly.load(config), MemoryNetwork().connect_draft(BOOT), BOOT)


def test_a_node_without_a_model_says_so() -> None:
    assert built(DraftConfig(model="none", tokenizer="tiny-target")).link.hello.draft_model == ""


@pytest.mark.parametrize("is_gguf", [False, True])
@pytest.mark.parametrize(("model", "num_parallel"), [("tiny-draft-s", 1), ("tiny-draft-p", 8)])
def test_sessions_know_how_much_the_model_drafts_in_one_pass(model: str, num_parallel: int, *, is_gguf: bool) -> None:
    daemon = built(DraftConfig(model=gguf_files.made(model) if is_gguf else model))
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
    daemon = built(DraftConfig(model="tiny-draft-s"))
    for targets, shared in ((100, 100), (5000, VOCABULARY.num_tokens)):
        daemon._connected(Connected(Welcome(VERSION, BOOT, "t", targets, 200, 1 << 20, 1.0, 6.0)))
        assert daemon.drafter.num_tokens == shared
