"""Fingerprints that tell tokenizers apart, and text to ids and back."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from goodspeed.engine.tokenizing import text
from goodspeed.engine.tokenizing.text_stream import TextStream
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import PromptError
from tests.engine.conftest import Save, make_tokenizer


def test_models_padded_differently_have_one_fingerprint(save_checkpoint: Save) -> None:
    narrow, wide = (checkpoints.load(str(save_checkpoint("llama", vocab_size=size))) for size in (258, 384))
    assert (narrow.vocab_size, wide.vocab_size) == (258, 384)
    assert narrow.tokenizer_fingerprint == wide.tokenizer_fingerprint


def test_a_fingerprint_survives_saving_padding_and_truncation(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    before = text.fingerprint(tokenizer)
    tokenizer.backend_tokenizer.enable_padding(pad_id=0)
    tokenizer.backend_tokenizer.enable_truncation(5)
    assert text.fingerprint(tokenizer) == before
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").touch()
    assert text.fingerprint(checkpoints.load_vocabulary(str(tmp_path)).tokenizer) == before


def test_other_merges_tokens_or_normalisation_have_another() -> None:
    tokenizers = [make_tokenizer() for _ in range(4)] + [make_tokenizer((("h", "e"),)), make_tokenizer(())]
    tokenizers[1].add_tokens(["<extra>"])
    tokenizers[2].add_special_tokens({"additional_special_tokens": ["<extra>"]})
    tokenizers[3].backend_tokenizer.normalizer = normalizers.Lowercase()
    assert len({text.fingerprint(tokenizer) for tokenizer in tokenizers}) == 6


def test_what_is_added_to_a_prompt_counts_and_not_how_it_is_written_down() -> None:
    def processed(processor: Any) -> str:
        tokenizer = make_tokenizer()
        tokenizer.backend_tokenizer.post_processor = processor
        return text.fingerprint(tokenizer)

    def template(single: str) -> Any:
        return processors.TemplateProcessing(single=single, special_tokens=[("<end>", 256)])

    plain, first, last = processed(template("$A")), processed(template("<end> $A")), processed(template("$A <end>"))
    assert len({plain, first, last}) == 3
    assert text.fingerprint(make_tokenizer()) == plain == processed(processors.ByteLevel(trim_offsets=False))
    assert processed(processors.Sequence([processors.ByteLevel(), template("<end> $A")])) == first


def test_settings_that_change_neither_ids_nor_texts_do_not_count() -> None:
    """Qwen's own files have these settings, and GGUF files do not tell."""
    digits = pre_tokenizers.Digits()

    def made(*, is_plain: bool, **settings: bool) -> str:
        split = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "trim_offsets": is_plain} | settings)
        tokenizer = make_tokenizer(pre_tokenizer=pre_tokenizers.Sequence([digits, split]))
        described = json.loads(tokenizer.backend_tokenizer.to_str())
        described["decoder"] |= dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), is_plain)
        affixes = ("continuing_subword_prefix", "end_of_word_suffix")
        described["model"] |= dict.fromkeys(affixes, None if is_plain else "")
        backend = Tokenizer.from_str(json.dumps(described))
        return text.fingerprint(PreTrainedTokenizerFast(tokenizer_object=backend))

    plain = made(is_plain=True)
    assert plain == made(is_plain=False)
    assert len({plain, made(is_plain=True, use_regex=False), made(is_plain=True, add_prefix_space=True)}) == 3


def test_text_goes_there_and_back_byte_by_byte() -> None:
    tokenizer, prompt = make_tokenizer(), "the  naïve , approach !\n\t日本 "
    token_ids = text.encode_prompt(tokenizer, prompt)
    assert token_ids[0] == 257  # the merge "th"
    assert text.decode(tokenizer, [*token_ids, 256]) == prompt
    assert text.num_tokens(tokenizer) == 258


def test_a_stream_gives_piece_by_piece_what_decoding_gives_at_once() -> None:
    tokenizer, prompt = make_tokenizer(), "it 's  naïve , is n't it ?\n日本 "
    tokenizer.clean_up_tokenization_spaces = True  # as some checkpoints ask for; it would eat spaces
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    stream = TextStream(tokenizer)
    pieces = [stream.push([token_id]) for token_id in text.encode_prompt(tokenizer, prompt)]
    assert "".join([*pieces, stream.end()]) == prompt


def test_a_chat_goes_through_the_tokenizers_own_template() -> None:
    tokenizer, messages = make_tokenizer(), [{"role": "user", "content": "hi"}]
    with pytest.raises(PromptError, match="no chat template"):
        text.encode_chat(tokenizer, messages)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
        "{{ m.role }}: {{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    token_ids = text.encode_chat(tokenizer, messages)
    assert text.decode(tokenizer, token_ids) == "user: hiassistant:"
    assert 256 in token_ids
    tokenizer.model_max_length = 2
    assert text.encode_chat(tokenizer, messages) == token_ids
    assert not tokenizer.deprecation_warnings, "transformers warned of a long text"
    with pytest.raises(PromptError, match="no such role"):
        text.encode_chat(tokenizer, [{"role": "bad", "content": ""}])
    with pytest.raises(PromptError, match="empty"):
        text.encode_chat(tokenizer, [])
