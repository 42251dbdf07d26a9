"""Tokenizers read without transformers say what it says; folders that need transformers are told apart."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from goodspeed.embedded import models
from goodspeed.engine.checkpoints import load_tokenizer
from goodspeed.engine.tokenizing import text, tokenizer_folder
from goodspeed.engine.tokenizing.fast_tokenizer import FastTokenizer, reads_alike
from goodspeed.engine.tokenizing.text import Inputs
from goodspeed.errors import CheckpointError, PromptError
from tests import chats

Save = Callable[..., Path]
TEXTS = ["it's  naïve, 日本 <end>x", "a", " \n\n\tdef f(x):\n    return 12345 # …", "<bos>the the<pad> é\u0301"]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "the <end> 日本"}],
    [{"role": "system", "content": "a\n"}, {"role": "user", "content": ""}, {"role": "assistant", "content": "  b "}],
]
TEMPLATE = """
{%- set state = namespace(num=0) %}
{%- for message in messages %}
    {%- if loop.index > 20 %}{% break %}{% endif %}
    {%- set state.num = state.num + 1 %}
    {{- bos_token + message['role'] | upper + ': ' + message.content | tojson + eos_token }}
  {% endfor %}
{% generation %}{{ state.num }}{% endgeneration %}
{%- if tools is none and not documents and add_generation_prompt %}
the{% endif %}
"""


@pytest.fixture(name="save")
def save_fixture(make_tokenizer: Callable[..., PreTrainedTokenizerFast], tmp_path: Path) -> Save:
    def save(*, bos: bool = False, template: str | None = TEMPLATE, **settings: Any) -> Path:
        """A folder as transformers saves it; bos: a special token before every prompt."""
        tokenizer = make_tokenizer((("t", "h"), ("th", "e")))
        tokenizer.add_special_tokens({"bos_token": "<bos>", "pad_token": "<pad>"})
        tokenizer.add_tokens(["日本"])
        if bos:
            pair = ("<bos>", tokenizer.convert_tokens_to_ids("<bos>"))
            post = processors.TemplateProcessing(single="<bos> $A", special_tokens=[pair])
            tokenizer.backend_tokenizer.post_processor = post
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        change(tmp_path, **settings)
        return tmp_path

    return save


def change(folder: Path, **settings: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def assert_same(ours: FastTokenizer, theirs: Any, chats: Iterable[list[dict[str, str]]] = CHATS) -> None:
    assert text.fingerprint(ours) == text.fingerprint(theirs)
    assert text.num_tokens(ours) == text.num_tokens(theirs)
    assert ours.eos_token_id == theirs.eos_token_id
    ids = range(text.num_tokens(theirs) + 2)
    assert [ours.convert_ids_to_tokens(i) for i in ids] == [theirs.convert_ids_to_tokens(i) for i in ids]
    for prompt in TEXTS:
        encoded = text.encode_prompt(theirs, prompt)
        assert text.encode_prompt(ours, prompt) == encoded
        assert text.decode(ours, encoded) == text.decode(theirs, encoded)
        assert text.ends_blank(ours, encoded) == text.ends_blank(theirs, encoded)
    for chat in chats:
        assert text.encode_chat(ours, chat) == text.encode_chat(theirs, chat)


@pytest.mark.parametrize("name", models.NAMES)
def test_embedded_tokenizers(name: str) -> None:
    assert reads_alike(models.path(name))
    assert_same(FastTokenizer.from_folder(models.path(name)), load_tokenizer(name))


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_saved_tokenizers(save: Save, bos: bool, kind: str) -> None:
    folder = save(bos=bos, tokenizer_class=kind)
    assert reads_alike(folder)
    ours, theirs = FastTokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    assert_same(ours, theirs)
    assert (text.encode_prompt(ours, "a")[0] == theirs.bos_token_id) is bos
    assert_same(copy.deepcopy(ours), theirs)


def test_padding_and_truncation_of_the_file_are_left_out(save: Save) -> None:
    folder = save()
    theirs = AutoTokenizer.from_pretrained(folder)
    theirs.backend_tokenizer.enable_padding(length=64)
    theirs.backend_tokenizer.enable_truncation(3)
    theirs.backend_tokenizer.save(str(folder / "tokenizer.json"))
    assert_same(FastTokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder))


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
    folder = save(template=template)
    for tokenizer in (FastTokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)):
        with pytest.raises(PromptError, match="the chat template refuses"):
            text.encode_chat(tokenizer, CHATS[0])


@pytest.mark.parametrize("prompt", ["", None, 3, "\ud800"])
def test_prompts_that_are_none(save: Save, prompt: Any) -> None:
    tokenizer = FastTokenizer.from_folder(save(template=None))
    with pytest.raises(PromptError):
        text.encode_prompt(tokenizer, prompt)
    with pytest.raises(PromptError, match="no chat template"):
        text.encode_chat(tokenizer, CHATS[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_class": "LlamaTokenizer"},
        {"tokenizer_class": None},
        {"add_bos_token": True},
        {"unk_token": "<unk>"},
        {"pad_token": "t"},
        {"extra_special_tokens": ["<more>"]},
        {"added_tokens_decoder": {"262": {"content": "<new>", "special": True}}},
        {"added_tokens_decoder": {"256": {"content": "<end>", "special": False}}},
    ],
)
def test_what_transformers_changes_is_left_to_transformers(save: Save, settings: dict[str, Any]) -> None:
    assert not reads_alike(save(**settings))


@pytest.mark.parametrize("settings", [{}, {"add_bos_token": True}, {"unk_token": "<unk>"}])
def test_either_way_the_fingerprint_is_that_of_the_verify_node(save: Save, settings: dict[str, Any]) -> None:
    folder = save(**settings)
    found = tokenizer_folder.load(str(folder))
    theirs = AutoTokenizer.from_pretrained(folder)
    assert isinstance(found.tokenizer, FastTokenizer) is not bool(settings)
    assert found.tokenizer_fingerprint == text.fingerprint(theirs)
    assert (found.num_tokens, found.eos_ids) == (text.num_tokens(theirs), (theirs.eos_token_id,))
    assert found.model_fingerprint == ""


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
    with pytest.raises(CheckpointError, match="it cannot be loaded"):
        tokenizer_folder.load(str(folder))


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{}, {"add_bos_token": True}])
def test_neither_way_loads_torch(save: Save, settings: dict[str, Any]) -> None:
    program = (
        "import sys; from goodspeed.engine.tokenizing import tokenizer_folder as t\n"
        "from goodspeed.engine.tokenizing.text import encode\n"
        "found = t.load(sys.argv[1]); encode(found.tokenizer, 'the', chat=True)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program, str(save(**settings))], capture_output=True, text=True)
    assert run.stdout.split() == ["False", str(bool(settings))], run.stderr


TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": "",
        "name": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {"é": [1]}}}],
    },
    {"role": "tool", "tool_call_id": "123456789", "content": "sun"},
    {"role": "assistant", "content": "It is", "reasoning_content": "so"},
]


@pytest.mark.parametrize("template", [chats.QWEN3, chats.R1, chats.MISTRAL, "{{ messages | tojson }}{{ tools }}"])
def test_chats_with_tools_and_settings(tmp_path: Path, template: str) -> None:
    folder = chats.save(tmp_path, template)
    assert reads_alike(folder)
    ours, theirs = FastTokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for settings in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
        for tools in ((), (chats.function("f"), chats.function("g", é={"type": "integer"}))):
            inputs = Inputs(tools, settings)
            for turns in (TURNS, TURNS[1:], TURNS[:2]):
                assert text.encode_chat(ours, turns, inputs) == text.encode_chat(theirs, turns, inputs)


def test_templates_by_name_with_tools(save: Save) -> None:
    folder = save(template=None)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    several = {"default": "plain", "tool_use": "{{ tools | length }}"}
    change(folder, chat_template=[{"name": name, "template": template} for name, template in several.items()])
    ours, theirs = FastTokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for inputs, said in ((Inputs(), "plain"), (Inputs((chats.function(),)), "1")):
        assert text.encode_chat(ours, CHATS[0], inputs) == text.encode_chat(theirs, CHATS[0], inputs)
        assert text.decode(ours, text.encode_chat(ours, CHATS[0], inputs)) == said


@pytest.mark.parametrize("asked", [{"tokenize": False}, {"return_dict": True}, {"add_generation_prompt": False}])
def test_other_ways_of_rendering_are_refused(asked: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="up to the assistant's turn"):
        chats.tokenizer().apply_chat_template(CHATS[0], **asked)  # type: ignore[arg-type]
