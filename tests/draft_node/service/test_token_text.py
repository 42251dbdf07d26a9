"""A token's own text and bytes: true bytes, of which the text's tokens together make the text."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from draft_node.service.token_text import TokenTexts
from goodspeed.engine.tokenizing.text import decode
from goodspeed.engine.torch.checkpoints import load_vocabulary
from tests.strategies import plain_text

OF_BOTH = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
GEMMA, LLAMA_2 = decoders.Sequence(OF_BOTH), decoders.Sequence([*OF_BOTH, decoders.Strip(" ", 1, 0)])


@cache
def embedded() -> Any:
    return load_vocabulary("tiny-target").tokenizer


def with_special(backend: Tokenizer) -> Any:
    backend.add_special_tokens([AddedToken("</s>", special=True), AddedToken("<reserved>", special=True)])
    backend.add_tokens([AddedToken("<tool call>", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


def sentence_piece(decoder: Any) -> Any:
    """Pieces with a marker for spaces, and a token for each byte beyond them."""
    pieces = ["▁", "▁river", "r", "i", "v", "e", "the", "▁▁", "é", "日"]
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    backend = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], byte_fallback=True))
    backend.decoder = decoder
    return with_special(backend)


def byte_level() -> Any:
    """A tokenizer like Llama 3's and Qwen's: a sequence with a byte-level decoder in it."""
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    return with_special(backend)


@cache
def texts_of(tokenizer: Any) -> TokenTexts:
    return TokenTexts(tokenizer)


def joined(tokenizer: Any, ids: list[int]) -> bytes:
    return b"".join(texts_of(tokenizer)[token_id].raw for token_id in ids)


@given(plain_text(embedded, 40))
def test_the_bytes_of_a_texts_tokens_are_the_text(text: str) -> None:
    ids = list(embedded()(text)["input_ids"]) if text else []
    assert joined(embedded(), ids) == text.encode()


@given(st.lists(st.integers(0, 4095), max_size=40))
def test_any_tokens_bytes_decode_to_their_text(ids: list[int]) -> None:
    assert joined(embedded(), ids).decode("utf-8", "replace") == decode(embedded(), ids)


@pytest.mark.parametrize("make", [byte_level, lambda: sentence_piece(GEMMA), lambda: sentence_piece(LLAMA_2)])
def test_every_single_token_is_read_as_the_decoder_reads_it(make: Any) -> None:
    tokenizer = make()
    for token_id in range(len(tokenizer)):
        text, raw = texts_of(tokenizer)[token_id]
        shown = decode(tokenizer, [token_id])
        if text in ("</s>", "<reserved>"):
            assert (shown, raw) == ("", b"")
        else:
            assert text in (shown, " " + shown)
            assert text == raw.decode("utf-8", "replace")


def test_bytes_of_sentence_pieces() -> None:
    tokenizer = sentence_piece(GEMMA)
    ids = tokenizer.convert_tokens_to_ids(["▁river", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x0A>", "▁▁", "日"])
    assert joined(tokenizer, ids).decode() == decode(tokenizer, ids) == " river😀\n  日"
    texts = TokenTexts(tokenizer)
    assert (texts[ids[1]].raw, texts[ids[1]].text) == (b"\xf0", "\ufffd")


def test_the_space_that_a_decoder_drops_is_in_the_first_tokens_bytes() -> None:
    tokenizer = sentence_piece(LLAMA_2)
    ids = tokenizer.convert_tokens_to_ids(["▁river", "▁river"])
    assert joined(tokenizer, ids) == b" river river"
    assert decode(tokenizer, ids) == "river river"


def test_special_tokens_have_a_name_and_no_bytes() -> None:
    tokenizer = byte_level()
    texts = TokenTexts(tokenizer)
    assert texts[tokenizer.eos_token_id] == ("</s>", b"")
    assert texts[len(tokenizer) - 1] == ("<tool call>", b"<tool call>")
    assert texts[len(tokenizer)] == ("", b"")


def test_a_decoder_of_another_kind_is_asked() -> None:
    backend = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "river": 1, "##s": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    assert TokenTexts(PreTrainedTokenizerFast(tokenizer_object=backend))[1] == ("river", b"river")
