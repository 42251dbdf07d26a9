"""Tokenizers loaded without their model are the checkpoint's own, and no template breaks out of its sandbox."""

import codecs
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from goodspeed.embedded import models
from goodspeed.engine.tokenizing import text, tokenizer_folder
from goodspeed.engine.tokenizing.text import Inputs
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.checkpoints import load_vocabulary
from goodspeed.errors import CheckpointError, PromptError
from tests import chats
from tests.engine.conftest import Save, make_tokenizer

CHAT = [{"role": "user", "content": "the <end> 日本"}]


@pytest.fixture(name="save")
def save_fixture(tmp_path: Path) -> Save:
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
    found, theirs = tokenizer_folder.load(name), load_vocabulary(name).tokenizer
    assert found.tokenizer_fingerprint == text.fingerprint(theirs)
    assert (found.num_tokens, found.eos_ids) == (text.num_tokens(theirs), (theirs.eos_token_id,))
    assert found.model_fingerprint == ""


CLASSES = ["CohereTokenizer", "GemmaTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "LlamaTokenizer", "Qwen2Tokenizer"]


@pytest.mark.parametrize("metaspace", [False, True])
@pytest.mark.parametrize("class_name", CLASSES)
def test_tokenizer_json_decides_whatever_class_is_named(save: Save, class_name: str, metaspace: bool) -> None:
    folder = save(tokenizer_class=class_name, bos_token="<bos>", unk_token=None)
    (folder / "model.safetensors").touch()
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.normalizer = normalizers.Replace("q", "th")
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    backend.pre_tokenizer = pre_tokenizers.Metaspace("t", "always") if metaspace else pre_tokenizers.Sequence(steps)
    joined = decoders.Fuse() if metaspace else decoders.ByteLevel()
    backend.decoder = decoders.Sequence([joined, decoders.Replace("b", "c")])
    around = [(name, backend.token_to_id(name)) for name in ("<bos>", "<end>")]
    backend.post_processor = processors.TemplateProcessing(single="<bos> $A <end>", special_tokens=around)
    backend.add_tokens([AddedToken("<tool>", lstrip=True, normalized=False)])
    backend.save(str(folder / "tokenizer.json"))
    words = "the qe  12 <tool> the<unk><mask><|endoftext|>"
    for found in (tokenizer_folder.load(str(folder)).tokenizer, load_vocabulary(str(folder)).tokenizer):
        assert text.encode_prompt(found, words) == backend.encode(words).ids
        assert text.decode(found, text.encode_part(found, "abc")) == backend.decode(backend.encode("abc").ids)
        assert found.get_vocab() == backend.get_vocab(), "no tokens that only transformers' class has"
        assert (found.bos_token, found.eos_token, found.pad_token) == ("<bos>", "<end>", "<pad>")


def test_tokens_of_the_settings_are_added_and_names_of_a_class_are_kept(save: Save) -> None:
    more = {"261": {"content": "<more>", "special": True}}
    folder = save(tokenizer_class="Qwen2Tokenizer", added_tokens_decoder=more, extra_special_tokens=["<image>"])
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["eos_token"], config["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for ends, eos in (("<end>", None), ("<|endoftext|>", "<|endoftext|>")):  # the class's, if the file has it
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace("<end>", ends))
        found = tokenizer_folder.load(str(folder)).tokenizer
        assert text.encode_part(found, "<more><image>") == [261, 262]
        assert (found.eos_token, found.pad_token) == (eos, eos)


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        (None, {}, (256,)),
        (None, {"eos_token_id": 7}, (7, 256)),
        ({"eos_token_id": [8, 9, -1, 400]}, {"eos_token_id": 7}, (8, 9, 7, 256)),
        ({"eos_token_id": 256}, {"eos_token_id": None, "text_config": {"eos_token_id": [7, 256]}}, (256, 7)),
    ],
)
def test_whatever_a_checkpoint_names_as_an_end_ends_its_texts(generation, config, ends, save_checkpoint):
    """The token that ends a turn may be in only one of the files."""
    folder = save_checkpoint()
    path = folder / "config.json"
    read = {key: value for key, value in json.loads(path.read_text()).items() if key != "eos_token_id"}
    path.write_text(json.dumps(read | config))
    (folder / "generation_config.json").write_text(json.dumps(generation or {}))
    assert tokenizer_folder.load(str(folder)).eos_ids == ends
    if "text_config" not in config:  # which is of other families
        assert checkpoints.load(str(folder)).eos_ids == ends


def test_a_byte_order_mark_is_named(save_checkpoint: Callable[..., Path]) -> None:
    path = save_checkpoint() / "config.json"
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read as JSON: Unexpected UTF-8 BOM"):
        checkpoints.load(str(path.parent))


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_empty_quantization_config_means_none(nothing: Any, save_checkpoint: Callable[..., Path]) -> None:
    folder = save_checkpoint()
    plain, path = checkpoints.load(str(folder)).model.state_dict(), folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": nothing}))
    found = checkpoints.load(str(folder)).model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in plain.items())


@pytest.mark.parametrize("name", ["nobody/nothing", "", "a\0b", "x" * 5000])
def test_no_tokenizer_there(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"there is no tokenizer\.json; give an embedded model's name \(tiny-t"):
        tokenizer_folder.load(name)
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json; did you mean tiny-target\? Else give an embedded"):
        tokenizer_folder.find("tiny-traget")


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
    folder = save(template={"default": "plain", "tool_use": "{{ tools | length }}"})
    tokenizer = tokenizer_folder.load(str(folder)).tokenizer
    for inputs, said in ((Inputs(), "plain"), (Inputs((chats.function(),)), "1")):
        assert text.decode(tokenizer, text.encode_chat(tokenizer, CHAT, inputs)) == said
