"""A GGUF file's tokenizer is its model's, or is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, pre_tokenizers
from transformers import AutoTokenizer, Qwen2Tokenizer

from goodspeed.embedded import models
from goodspeed.engine.gguf import vocabulary
from goodspeed.engine.gguf.file import read
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.text import decode, encode_chat, encode_part, fingerprint, special_ids
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, UnsupportedModelError
from tests import gguf_files, llama_server, smollm2
from tests.gguf_files import FIELDS, WEIGHTS, Fields, content

TEXT = "Déjà vu 1234: it's  <|end|> 漢字\n\n🙂 <|im_end|>"


def load(path: Path, fields: Fields, rows: int = 8) -> Vocabulary:
    path.write_bytes(content(FIELDS | fields, WEIGHTS | {"token_embd.weight": ((1, rows), 0, bytes(4 * rows))}))
    return vocabulary.load(read(path, "it"))


def test_a_file_without_weights_has_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(content(FIELDS, {}))
    file = read(path, "it")
    assert vocabulary.load(file).num_tokens == 6  # of 7: the last is unused
    with pytest.raises(CheckpointError, match=r"^it: the GGUF file has a tokenizer and no weights; name the model's"):
        vocabulary.check(file)


@pytest.mark.parametrize("name", models.NAMES)
def test_an_exported_model_has_the_tokenizer_of_its_checkpoint(name: str) -> None:
    found, theirs = vocabulary.load(read(Path(gguf_files.made(name)), name)), tokenizer_folder.load(name)
    assert found.tokenizer_fingerprint == theirs.tokenizer_fingerprint
    assert (found.eos_ids, found.num_tokens) == (theirs.eos_ids, theirs.num_tokens)
    messages = [{"role": "user", "content": TEXT}]
    assert encode_chat(found.tokenizer, messages) == encode_chat(theirs.tokenizer, messages)
    assert found.tokenizer.model_max_length == 2048


UNUSUAL = (
    "".join(map(chr, range(1, 128))),
    "a12  345\n\n6\t7.8e-9 0x1f ½ ² ١٢٣ 1,250 2026-11-28",
    "naïve Übergröße Привет мир 漢字 かな 한국어 e\u0301 \u00a0\u2028 🙂👩‍👩‍👧 🇨🇭",
    "def f(x, *y):\n\treturn {'a': [x] * 40}  # it's we'll\r\n\n\n    pass",
    "<|im_end|> <|im_start|>user<|endoftext|>\n<|not one|>",
)
WITHOUT_TOKENS = dict.fromkeys((4, 6, 19, 20, 22, 29))
"""Control characters that smollm2 has no tokens for: its tokenizer leaves them out."""


@pytest.mark.real
def test_a_real_files_tokenizer_is_its_models() -> None:
    """llama.cpp reads the file by itself. transformers does so too, but takes digits together."""
    file = models.packaged_file(smollm2.NAME)
    found = vocabulary.load(read(file, smollm2.NAME))
    theirs = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    with llama_server.serving(file) as url:
        for text in (*smollm2.PROMPTS.values(), *map(smollm2.chat, smollm2.PROMPTS.values()), TEXT, *UNUSUAL):
            ids = encode_part(found.tokenizer, text)
            assert llama_server.ask(url, "tokenize", content=text)["tokens"] == ids, text
            assert decode(found.tokenizer, ids, shows_special=True) == text.translate(WITHOUT_TOKENS)
            if not any(letter.isnumeric() for letter in text):
                assert theirs(text)["input_ids"] == ids, text
    messages = [{"role": "user", "content": smollm2.PROMPTS["qa"]}]
    prompt = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    spelled_out = encode_part(found.tokenizer, smollm2.chat(smollm2.PROMPTS["qa"]))
    assert encode_chat(found.tokenizer, messages) == prompt == spelled_out
    assert decode(found.tokenizer, list(found.eos_ids), shows_special=True) == "<|im_end|><|endoftext|>"


def test_tokens_are_special_added_or_not_there_as_their_types_say(path: Path) -> None:
    found = load(path, {})
    assert encode_part(found.tokenizer, "abb<tool>a<|im_end|>") == [3, 1, 5, 0, 4]
    assert decode(found.tokenizer, [3, 5, 2, 4]) == "ab<tool> "
    assert special_ids(found.tokenizer) == {4}
    assert "[PAD6]" not in found.tokenizer.get_vocab()
    assert (found.num_tokens, found.eos_ids, found.tokenizer.eos_token) == (6, (4,), "<|im_end|>")


def test_tokens_without_types_are_ordinary(path: Path) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != "tokenizer.ggml.token_type"}
    path.write_bytes(content(fields))
    assert vocabulary.load(read(path, "it")).num_tokens == 7


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, [3]),
        ({"tokenizer.ggml.add_bos_token": (7, False)}, [3]),
        ({"tokenizer.ggml.add_bos_token": (7, True)}, [4, 3]),
        ({"tokenizer.ggml.add_bos_token": (7, True), "tokenizer.ggml.add_eos_token": (7, True)}, [4, 3, 4]),
        ({"tokenizer.ggml.pre": (8, "llama-bpe")}, [4, 3]),  # by default there
        ({"tokenizer.ggml.pre": (8, "llama-bpe"), "tokenizer.ggml.add_bos_token": (7, False)}, [3]),
    ],
)
def test_prompts_begin_and_end_as_the_file_says(path: Path, fields: Fields, wanted: list[int]) -> None:
    found = load(path, {"tokenizer.ggml.bos_token_id": (4, 4)} | fields)
    assert found.tokenizer("ab")["input_ids"] == wanted


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", [" 1234", " it", "'", "S", " aB", " x", "\u0301", "y", "\n\n", " z"]),
        ("smollm", [" ", "1", "2", "3", "4", " it", "'", "S", " aB", " x", "\u0301", "y", "\n\n", " z"]),
        ("llama-bpe", [" ", "123", "4", " it", "'S", " aB", " x", "\u0301y", "\n\n", " z"]),
        ("qwen2", [" ", "1", "2", "3", "4", " it", "'S", " aB", " x", "\u0301y", "\n\n", " z"]),
        ("qwen35", [" ", "1", "2", "3", "4", " it", "'S", " aB", " x\u0301y", "\n\n", " z"]),
        ("tekken", [" ", "1", "2", "3", "4", " it", "'S", " a", "B", " x\u0301y", "\n\n", " z"]),
    ],
)
def test_texts_are_split_as_the_file_says(path: Path, pre: str, words: list[str]) -> None:
    found = load(path, {"tokenizer.ggml.pre": (8, pre), "tokenizer.ggml.bos_token_id": (4, 4)})
    backend = found.tokenizer.backend_tokenizer
    parts = backend.pre_tokenizer.pre_tokenize_str(" 1234 it'S aB x\u0301y\n\n z")
    assert [backend.decoder.decode([part]) for part, _ in parts] == words


def test_ends_are_all_that_the_file_names_and_those_known_by_name(path: Path) -> None:
    tokens = ["a", "b", "<|eot_id|>", "<|end|>", "<|im_end|>", "<x>", "<|endoftext|>"]
    fields: Fields = {
        "tokenizer.ggml.tokens": (9, (8, tokens)),
        "tokenizer.ggml.token_type": (9, (5, [1, 1, 3, 1, 3, 3, 3])),  # one that is no control token ends nothing
        "tokenizer.ggml.merges": (9, (8, [])),
        "tokenizer.ggml.eos_token_id": (4, 6),
        "tokenizer.ggml.eot_token_id": (4, 5),
    }
    assert load(path, fields).eos_ids == (6, 5, 2, 4)


def test_an_id_is_the_files_also_where_another_token_is_spelled_alike(path: Path) -> None:
    fields: Fields = {
        "tokenizer.ggml.tokens": (9, (8, ["a", "b", "<|im_end|>", "ab", "<|im_end|>"])),
        "tokenizer.ggml.token_type": (9, (5, [1, 1, 5, 1, 3])),
        "tokenizer.ggml.bos_token_id": (4, 4),
        "tokenizer.ggml.add_bos_token": (7, True),
    }
    found = load(path, fields, rows=5)
    assert (found.eos_ids, found.tokenizer("ab<|im_end|>")["input_ids"]) == ((4,), [4, 3, 4])


@pytest.mark.parametrize("name", ["unknown", "padding"])
@pytest.mark.parametrize(("number", "shown", "special"), [(0, "ab", {4}), (3, "a", {3, 4}), (2, "ab", {4})])
def test_only_a_token_that_is_not_ordinary_is_hidden_where_it_is_named(path, name, number, shown, special) -> None:
    kinds = [1, 1, 5, 3 if number == 3 else 1, 3, 4, 5]
    types = {"tokenizer.ggml.token_type": (9, (5, kinds)), f"tokenizer.ggml.{name}_token_id": (4, number)}
    found = load(path, types | {"tokenizer.ggml.merges": (9, (8, []))})
    assert decode(found.tokenizer, [0, 1] if number != 3 else [0, 3]) == shown
    assert special_ids(found.tokenizer) == special
    assert {*found.tokenizer.all_special_ids} == special
    assert found.num_tokens == 6


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def with_tokens(added: list[str], kinds: list[int]) -> Fields:
    """A vocabulary of all bytes and `ab`, of ids 0 to 256, then these."""
    return {
        "tokenizer.ggml.pre": (8, "qwen2"),
        "tokenizer.ggml.tokens": (9, (8, [*BYTES, "ab", *added])),
        "tokenizer.ggml.token_type": (9, (5, [1] * 257 + kinds)),
        "tokenizer.ggml.eos_token_id": (4, 257),
    }


def test_added_tokens_at_the_end_are_apart_as_in_the_makers_files(path: Path) -> None:
    found = load(path, with_tokens(["<|endoftext|>", "<tool>"], [3, 4]), rows=300)
    vocab = {token: number for number, token in enumerate([*BYTES, "ab"])}
    theirs = Qwen2Tokenizer(vocab=vocab, merges=[("a", "b")])
    theirs.add_tokens([AddedToken("<tool>", normalized=False)])
    assert found.tokenizer_fingerprint == fingerprint(theirs)
    assert encode_part(found.tokenizer, "ab<tool><|endoftext|>") == [256, 258, 257]


@pytest.mark.parametrize(
    ("added", "kinds"),
    [
        (["<end>", "[PAD]", "<tool>"], [3, 5, 4]),  # with a gap
        (["[PAD]", "ordinary", "<end>", "<tool>"], [5, 1, 3, 4]),  # after a gap
        (["<end>", "ordinary", "<tool>"], [3, 1, 4]),  # between ordinary ones
        (["<end>", "ab", "<tool>"], [3, 4, 4]),  # one that is an ordinary one, too
        (["ab", "<end>", "<tool>"], [1, 3, 4]),  # after one that is there twice
    ],
)
def test_ids_are_the_files_wherever_its_added_tokens_are(path: Path, added: list[str], kinds: list[int]) -> None:
    found = load(path, with_tokens(added, kinds), rows=300)
    assert encode_part(found.tokenizer, "<tool><end>") == [257 + added.index("<tool>"), 257 + added.index("<end>")]
    assert found.num_tokens == 257 + len(added)


def test_several_chat_templates_keep_their_names(path: Path) -> None:
    one: Fields = {"tokenizer.chat_template": (8, "plain")}
    assert load(path, one).tokenizer.chat_template == "plain"
    several = one | {"tokenizer.chat_templates": (9, (8, ["tool_use"]))}
    several |= {"tokenizer.chat_template.tool_use": (8, "tools")}
    assert load(path, several).tokenizer.chat_template == {"default": "plain", "tool_use": "tools"}
    assert load(path, {}).tokenizer.chat_template is None


REFUSED: list[tuple[Fields, type[Exception], str]] = [
    ({"tokenizer.ggml.model": (8, "llama")}, UnsupportedModelError, "of kind 'llama'"),
    (
        {"tokenizer.ggml.pre": (8, "default")},
        UnsupportedModelError,
        "splits texts as 'default', which is none of gpt-2",
    ),
    ({"tokenizer.ggml.pre": (9, (8, ["smollm"]))}, UnsupportedModelError, r"splits texts as \['smollm'\]"),
    ({"tokenizer.ggml.tokens": (9, (4, [1, 2]))}, CheckpointError, "ggml.tokens is no list of str"),
    ({"tokenizer.ggml.tokens": (8, "a")}, CheckpointError, "ggml.tokens is 'a'"),
    ({"tokenizer.ggml.token_type": (9, (5, [1]))}, CheckpointError, "7 tokens, but types of 1"),
    ({"tokenizer.ggml.merges": (9, (8, ["a z"]))}, CheckpointError, "its tokenizer cannot be made"),
    ({"tokenizer.ggml.eos_token_id": (4, 7)}, CheckpointError, "eos_token_id is 7, but there are 7 tokens"),
    ({"tokenizer.ggml.add_bos_token": (7, True)}, CheckpointError, "a token bos, but it names none"),
]


@pytest.mark.parametrize(("fields", "kind", "told"), REFUSED)
def test_a_tokenizer_that_would_be_wrong_is_refused(path: Path, fields: Fields, kind: Any, told: str) -> None:
    with pytest.raises(kind, match=told) as raised:
        load(path, fields)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("missing", "told"), [("model", "has no tokenizer"), ("pre", "does not say how"), ("tokens", "tokens is missing")]
)
def test_a_tokenizer_that_is_not_told_is_refused(path: Path, missing: str, told: str) -> None:
    path.write_bytes(content({key: value for key, value in FIELDS.items() if key != f"tokenizer.ggml.{missing}"}))
    with pytest.raises(CheckpointError, match=told):
        vocabulary.load(read(path, "it"))


def test_more_tokens_than_rows_are_refused(path: Path) -> None:
    assert load(path, {}, rows=6).num_tokens == 6
    with pytest.raises(CheckpointError, match="its tokenizer has 7 tokens, but the model 2 rows"):
        load(path, {}, rows=2)


def test_no_torch_is_loaded() -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom goodspeed.engine.gguf import file, vocabulary\n"
        f"vocabulary.load(file.read(Path({gguf_files.made('tiny-draft-s')!r}), 'it'))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
