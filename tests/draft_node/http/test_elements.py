"""A body's elements are bounded, and no body blocks the node, accepted or not."""

import json
from collections.abc import Callable

import pytest

from draft_node.http import body as body_module
from draft_node.http.body import MAX_BARE_BYTES, MAX_CONTAINERS, MAX_STRINGS, MAX_VALUES
from draft_node.http.errors import ApiError
from experiments.benchmarks.bodies import BODIES, SIZE, cpu_s, repeated
from tests.draft_node.http.fake import Api

HANGS_S = 1.0
"""Twenty times what `experiments.benchmarks.bodies` is to show, so that a slow machine passes."""


def taken(body: bytes) -> bool:
    try:
        body_module.check_elements(body)
    except ApiError as error:
        return error.status != 413
    return True


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (lambda number: repeated(b"[]", number - 2), MAX_CONTAINERS),
        (lambda number: repeated(b"{}", number - 2), MAX_CONTAINERS),
        (lambda number: repeated(b'"a"', number - 1), MAX_STRINGS),
        (lambda number: repeated(b"1", number), MAX_VALUES),
    ],
    ids=["lists", "objects", "texts", "values"],
)
def test_at_the_bound_and_one_above(body: Callable[[int], bytes], most: int) -> None:
    assert taken(body(most))
    assert not taken(body(most + 1))


def test_bytes_besides_texts() -> None:
    bare = len(b"{:}")
    assert taken(b'{"prompt":"' + b"a" * SIZE + b'"}' + b"1" * (MAX_BARE_BYTES - bare) + b" " * 1000)
    assert not taken(b'{"prompt":"a"}' + b"1" * (MAX_BARE_BYTES - bare + 1))
    assert not taken(b'{"prompt":"a"}' + b"\n" * (MAX_BARE_BYTES - bare + 1))


def test_spaces_after_commas_are_not_counted() -> None:
    """64 prompts of 4,096 ids of six digits pass as Python's json writes them, too."""
    body = json.dumps({"prompt": [[151643] * 4095] * 64}).encode()
    assert len(body) > MAX_BARE_BYTES - 1000
    assert taken(body.replace(b", ", b",  "))


@pytest.mark.parametrize(
    "text", [",[{" * 100_000, '","' * 100_000, '\\"' * 100_000, "\\" * 99_999, '\\\\"[,' * 50_000, '"' * 100_001]
)
def test_what_stands_in_a_text_is_not_counted(text: str) -> None:
    assert taken(json.dumps({"prompt": text, "stop": [text, text + "x"]}).encode())
    assert not taken(json.dumps({"prompt": [text] + [[]] * MAX_CONTAINERS}).encode())


@pytest.mark.parametrize("kind", BODIES)
def test_no_body_hangs_what_reads_it(kind: str) -> None:
    """The benchmark tells how long each takes. What is quadratic in 4 MiB would take minutes."""
    assert min(cpu_s(kind) for _ in range(3)) < HANGS_S


PATHS = ("v1/completions", "v1/chat/completions", "v1/responses", "v1/messages", "v1/messages/count_tokens", "tokenize")


@pytest.mark.thorough
@pytest.mark.parametrize("path", [*PATHS, "detokenize"])
def test_the_answer_names_the_bound(path: str) -> None:
    answer = Api().client.post(f"/{path}", content=repeated(b"[1]"), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert f"{MAX_CONTAINERS} lists and objects" in answer.json()["error"]["message"]
