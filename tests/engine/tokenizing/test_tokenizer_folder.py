"""Tokenizers loaded without their model are the checkpoint's own, and no template breaks out of its sandbox."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from goodspeed.embedded import models
from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.tokenizing import text, tokenizer_folder
from goodspeed.engine.tokenizing.text import Inputs
from goodspeed.errors import CheckpointError, PromptError
from tests import chats
from tests.engine.conftest import Save

CHAT = [{"role": "user", "content": "the <end> 日本"}]


@pytest.fixture(name="save")
def save_fixture(make_tokenizer: Callable[..., PreTrainedTokenizerFast], tmp_path: Path) -> Save:
    def save(*, template: Any = None, **settings: Any) -> Path:
        """A folder as transformers saves it."""
        tokenizer = make_tokenizer((("t", "h"), ("th", "e")))
        tokenizer.add_special_tokens({"bos_token": "<bos>", "pad_token": "<pad>"})
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))
        return tmp_path

    return save


@pytest.mark.parametrize("name", models.NAMES)
def test_embedded_tokenizers_are_those_of_the_verify_node(name: str) -> None:
    found, theirs = tokenizer_folder.load(name), load_tokenizer(name)
    assert found.tokenizer_fingerprint == text.fingerprint(theirs)
    assert (found.num_tokens, found.eos_ids) == (text.num_tokens(theirs), (theirs.eos_token_id,))
    assert found.model_fingerprint == ""


@pytest.mark.parametrize("settings", [{}, {"add_bos_token": True}, {"unk_token": "<unk>"}])
def test_so_are_saved_ones(save: Save, settings: dict[str, Any]) -> None:
    folder = save(**settings)
    found = tokenizer_folder.load(str(folder))
    assert found.tokenizer_fingerprint == text.fingerprint(AutoTokenizer.from_pretrained(folder))


def test_a_checkpoints_word_on_the_end_comes_first(save: Save) -> None:
    folder = save()
    (folder / "config.json").write_text('{"model_type": "llama", "eos_token_id": 7}')
    assert tokenizer_folder.load(str(folder)).eos_ids == (7,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [8, 9]}')
    assert tokenizer_folder.load(str(folder)).eos_ids == (8, 9)


@pytest.mark.parametrize("name", ["nobody/nothing", "", "a\0b", "x" * 5000])
def test_no_tokenizer_there(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"there is no tokenizer\.json; give an embedded model's name \(tiny-t"):
        tokenizer_folder.load(name)


@pytest.mark.parametrize("damage", ["{", "[]", '{"model": 3, "added_tokens": []}'])
def test_a_damaged_tokenizer_says_so(save: Save, damage: str) -> None:
    folder = save()
    (folder / "tokenizer.json").write_text(damage)
    with pytest.raises(CheckpointError, match="the tokenizer cannot be loaded"):
        tokenizer_folder.load(str(folder))


@pytest.mark.thorough
def test_no_torch_is_loaded(save: Save) -> None:
    program = (
        "import sys; from goodspeed.engine.tokenizing import tokenizer_folder as t\n"
        "from goodspeed.engine.tokenizing.text import encode\n"
        "found = t.load(sys.argv[1]); encode(found.tokenizer, 'the', chat=True)\n"
        "print('torch' in sys.modules)"
    )
    folder = save(template="{{ messages[0].content }}")
    run = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("False", "")


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ dict.mro() }}",
        "{% set n = namespace(_x=1) %}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ messages.append(1) }}",
        "{% if %}",
        "{{ messages[7].content + 'x' }}",
    ],
)
def test_templates_that_refuse_or_break_out_are_errors_of_the_prompt(save: Save, template: str) -> None:
    if "_x" in template:
        pytest.importorskip("transformers", minversion="5.23")  # older ones refuse to read such a name, not to set it
    tokenizer = tokenizer_folder.load(str(save(template=template))).tokenizer
    with pytest.raises(PromptError, match="the chat template refuses"):
        text.encode_chat(tokenizer, CHAT)


@pytest.mark.parametrize("prompt", ["", None, 3, "\ud800"])
def test_prompts_that_are_none(save: Save, prompt: Any) -> None:
    tokenizer = tokenizer_folder.load(str(save())).tokenizer
    with pytest.raises(PromptError):
        text.encode_prompt(tokenizer, prompt)
    with pytest.raises(PromptError, match="no chat template"):
        text.encode_chat(tokenizer, CHAT)


def test_templates_by_name_with_tools(save: Save) -> None:
    tokenizer = tokenizer_folder.load(
        str(save(template={"default": "plain", "tool_use": "{{ tools | length }}"}))
    ).tokenizer
    for inputs, said in ((Inputs(), "plain"), (Inputs((chats.function(),)), "1")):
        assert text.decode(tokenizer, text.encode_chat(tokenizer, CHAT, inputs)) == said
