"""The prefix cache over HTTP: what the usage tells of it, and how a request does without."""

from typing import Any

from tests.draft_node.http.fake import Api, error_of


def cached(answer: Any) -> int:
    number: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return number


def test_the_usage_tells_what_was_in_memory(api: Api) -> None:
    api.service.cached = [4, 2]
    assert cached(api.complete(max_tokens=2)) == 4
    assert cached(api.chat(max_tokens=2)) == 2
    assert cached(api.chat(max_tokens=2)) == 0


def test_what_one_choice_has_read_was_not_there_for_the_request(api: Api) -> None:
    api.service.cached = [0, 4, 4]
    assert cached(api.complete(max_tokens=2, n=3)) == 0
    api.service.cached = [3, 4, 0, 1]
    assert cached(api.complete(prompt=["hello", "you"], max_tokens=2, n=2)) == 3


def test_a_request_may_do_without(api: Api) -> None:
    for extension in ({"prefix_cache": False}, {"prefix_cache": True}, {}):
        api.complete(max_tokens=1, goodspeed=extension)
    api.chat(max_tokens=1)
    assert [generation.cache_salt != b"" for generation in api.service.generations] == [False, True, True, True]
    assert "prefix_cache" in error_of(api.complete(goodspeed={"prefix_cache": "no"}))["message"]
