"""The tokenizer gives back every byte, adds nothing, and its chat template writes the chat domain's format."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from goodspeed.embedded import models
from goodspeed.engine.tokenizing.generation_settings import TextDefaults, read
from training import tokenizer
from training.domains import chats

TOKENIZER: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(models.path("tiny-target"))
RAW: Tokenizer = tokenizer.load(models.path("tiny-target"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_round_trip(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert TOKENIZER.decode(ids) == text
    assert RAW.encode(text).ids == ids


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


def test_a_blank_line_ends_a_turn_and_nothing_else() -> None:
    """So an answer that ends there is whole, and the user's next turn is none of it."""
    rng = Random(5)
    for _ in range(200):
        ask, answer = rng.choices(chats.KINDS, chats.WEIGHTS)[0](rng)
        assert tokenizer.TURN_END not in ask + answer
        assert chats.render([(ask, answer)]).endswith(answer + tokenizer.TURN_END)


@pytest.mark.parametrize("name", models.NAMES)
def test_the_models_say_what_ends_a_turn_to_chats_alone(name: str) -> None:
    """That string in generation_config.json would keep transformers' `generate` from running without a tokenizer."""
    found = read(name, models.path(name))
    assert found.chats.stop == (tokenizer.TURN_END,)
    assert found.completions == TextDefaults()
    assert not found.unsupported


def test_chat_template_writes_tools_calls_and_thoughts() -> None:
    tool = {
        "type": "function",
        "function": {"name": "get", "parameters": {"type": "object", "properties": {"city": {}}}},
    }
    call = {"id": "1", "type": "function", "function": {"name": "get", "arguments": {"city": "Rome"}}}
    messages = [
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "sun", "tool_call_id": "1"},
    ]
    assert TOKENIZER.apply_chat_template(messages, tools=[tool], tokenize=False, add_generation_prompt=True) == (
        'Tools: get(city)\n\nAssistant: <think>hm</think><tool_call>\n{"name": "get", "arguments": {"city": "Rome"}}\n'
        "</tool_call>\n\nTool: sun\n\nAssistant:"
    )
