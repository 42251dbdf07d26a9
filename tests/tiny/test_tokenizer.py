"""The tokenizer gives back every byte, adds nothing, and its chat template writes the chat domain's format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from goodspeed.tiny import models, tokenizer
from goodspeed.tiny.domains import chats

TOKENIZER: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(models.path("tiny-target"))
RAW: Tokenizer = tokenizer.load(models.path("tiny-target"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_round_trip(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert TOKENIZER.decode(ids) == text
    assert RAW.encode(text).ids == ids


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n\t  x ", " don 't , . !", "naïve 日本語 \U0001f600", "\r\n\0\x7f", "\u0661\u0662 34"]
)
def test_round_trip_by_hand(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER(text).input_ids) == text


def test_every_byte_is_a_token_and_the_end_is_none_of_them() -> None:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert set(alphabet) <= set(RAW.get_vocab()) - {tokenizer.END}


def test_nothing_is_added_to_a_prompt() -> None:
    assert TOKENIZER("The end").input_ids == RAW.encode("The end", add_special_tokens=False).ids
    assert TOKENIZER(tokenizer.END).input_ids == [tokenizer.END_ID] == [TOKENIZER.eos_token_id]
    assert len(TOKENIZER) == tokenizer.VOCAB_SIZE


def test_digits_stand_alone() -> None:
    assert len(RAW.encode("2026").ids) == 4


def test_chat_template_writes_the_format_of_the_chat_domain() -> None:
    turns = [("Hello?", "Hi."), ("How are you?", "Fine.")]
    roles = [("user", turns[0][0]), ("assistant", turns[0][1]), ("user", turns[1][0]), ("assistant", turns[1][1])]
    messages = [{"role": role, "content": content} for role, content in roles]
    whole = TOKENIZER.apply_chat_template(messages, tokenize=False)
    opened = TOKENIZER.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    assert whole == chats.render(turns)
    assert whole.startswith(opened)
