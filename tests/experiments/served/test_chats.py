"""Chats from files, as requests to draft nodes."""

import pytest

from experiments.served.chats import Requests
from goodspeed.errors import ConfigError
from training.chats import MAX_PROMPT, Chat


def chat(number, text):
    return Chat(str(number), (text, "and then?"))


@pytest.fixture
def requests():
    asked = {"a": [chat(number, f"Is {number} even?") for number in range(3)], "b": [chat(9, "Who are you?")]}
    return Requests(asked, "tiny-target", 0.7, 20)


def test_no_text_is_asked_for_twice_and_every_policy_meets_the_same(requests):
    texts = [(tuple(one.prompt), one.seed) for seed in range(4) for own in requests.of(seed, 50) for one in own]
    assert len(set(texts)) == len(texts)
    assert requests.of(2, 5) == requests.of(2, 5)


def test_prompts_that_are_too_long_are_left_out():
    long = chat(1, "word " * 2 * MAX_PROMPT)
    ((one,),) = Requests({"a": [long, chat(2, "Short?")]}, "tiny-target", 1.0, 5).of(0, 1)
    assert len(one.prompt) <= MAX_PROMPT
    with pytest.raises(ConfigError, match="every prompt of a has more than 1024 tokens"):
        Requests({"a": [long]}, "tiny-target", 1.0, 5)
