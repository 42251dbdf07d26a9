"""A request may ask for more than text: logprobs of its prompt, ids of tokens."""

from typing import Any

import pytest

from goodspeed.wire.fields import MAX_PROMPT_LOGPROBS
from tests.draft_node.http.fake import Api, chunks_of, refused

HARNESS = {"echo": True, "logprobs": 1, "temperature": 0}


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_an_echo_with_logprobs_as_evaluation_harnesses_read_it(api: Api, max_tokens: int) -> None:
    answer = api.complete(**HARNESS, prompt="hey", max_tokens=max_tokens).json()
    [choice] = answer["choices"]
    told = choice["logprobs"]
    assert choice["text"] == "hey" + "a" * max_tokens
    assert choice["finish_reason"] == "length"
    assert told["tokens"] == ["h", "e", "y", "a"][: 3 + max_tokens]
    assert told["token_logprobs"] == [None, -1.5, -1.5, -0.25][: 3 + max_tokens]
    assert told["top_logprobs"][:3] == [None, {"e": -1.5, "d": -0.5}, {"y": -1.5, "x": -0.5}]
    assert told["text_offset"] == [0, 1, 2, 3][: 3 + max_tokens]
    assert answer["usage"]["completion_tokens"] == max_tokens
    [generation] = api.service.generations
    assert (generation.max_tokens, generation.num_prompt_logprobs, generation.num_logprobs) == (1, 1, 1)


def test_the_one_token_after_a_scored_prompt_is_no_end_of_sequence(api: Api) -> None:
    """Harnesses leave the last entry out, whatever it is."""
    api.complete(**HARNESS, max_tokens=1)
    api.complete(**HARNESS, max_tokens=2)
    api.complete(max_tokens=1, logprobs=1)
    assert [generation.min_tokens for generation in api.service.generations] == [1, 0, 0]


def test_an_echo_in_chunks_is_the_whole_one(api: Api) -> None:
    body = {**HARNESS, "prompt": ["hey", "you"], "max_tokens": 3}
    whole = api.complete(**body).json()["choices"]
    joined: list[dict[str, Any]] = [{"text": "", "tokens": [], "token_logprobs": []} for _ in whole]
    for chunk in chunks_of(api.complete(**body, stream=True)):
        for choice in chunk["choices"]:
            into = joined[choice["index"]]
            into["text"] += choice["text"]
            for name in ("tokens", "token_logprobs"):
                into[name] += (choice["logprobs"] or {}).get(name, [])
    for choice, into in zip(whole, joined, strict=True):
        told = {name: choice["logprobs"][name] for name in ("tokens", "token_logprobs")}
        assert into == {"text": choice["text"], **told}


@pytest.mark.parametrize("stream", [False, True])
def test_more_than_can_be_told_of_prompts_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    monkeypatch.setattr("draft_node.http.ask.generation.MAX_PROMPT_LOGPROBS", 12)
    body: dict[str, Any] = {**HARNESS, "max_tokens": 1, "stream": stream}
    assert api.complete(**body, prompt=["123", "456"]).status_code == 200
    refused(api.complete(**body, prompt=["123", "4567"]), "echo", "at most 6")
    refused(api.complete(**body, prompt="1", n=2), "n")
    assert MAX_PROMPT_LOGPROBS == 1 << 18


def test_ids_of_tokens(api: Api) -> None:
    [choice] = api.complete(prompt="hey", max_tokens=2, return_token_ids=True).json()["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([104, 101, 121], [97, 98])
    answer = api.chat(max_tokens=2, return_token_ids=True).json()
    assert answer["prompt_token_ids"] == list(b"user:hi;")
    assert answer["choices"][0]["token_ids"] == [97, 98]
    assert "token_ids" not in api.chat(max_tokens=2).json()["choices"][0]


@pytest.mark.parametrize("extra", [{}, {"echo": True}, {"echo": True, "logprobs": 0}])
def test_ids_of_tokens_in_chunks(api: Api, extra: dict[str, Any]) -> None:
    chunks = chunks_of(api.complete(prompt="hey", max_tokens=2, return_token_ids=True, stream=True, **extra))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["prompt_token_ids"] for choice in choices if "prompt_token_ids" in choice] == [[104, 101, 121]]
    assert [token for choice in choices for token in choice.get("token_ids", [])] == [97, 98]
    assert "".join(choice["text"] for choice in choices) == ("hey" if extra else "") + "ab"


def test_ids_of_tokens_in_a_chats_chunks(api: Api) -> None:
    first, *others = chunks_of(api.chat(max_tokens=2, return_token_ids=True, stream=True))
    assert first["prompt_token_ids"] == list(b"user:hi;")
    assert [token for chunk in others for token in chunk["choices"][0].get("token_ids", [])] == [97, 98]
    assert not any("prompt_token_ids" in chunk for chunk in others)
