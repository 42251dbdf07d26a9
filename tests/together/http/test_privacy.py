"""With API keys, one user's text never drafts for another user, and nobody else finds what was read of it.

Another user's counts, and so times, are those of a node that nobody has asked before.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import VerifyNode
from tests.together.http.conftest import draft_node, official
from tests.together.http.test_texts import MODEL, generated, prompt
from tests.together.http.test_without_a_model import BARE

pytestmark = pytest.mark.nodes

OTHERS = ("ben", "cem", "dora", "eva")
NUM_TOKENS = 60
# A text in which no two tokens follow each other that already did, in the text or in its prompt.
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
MAX_TRIES = 100  # so often Ana asks again until offers came in time: rounds of a small target do not wait for them


@pytest.fixture(name="url", scope="module")
def url_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the API of a fresh draft node with keys, at a verify node that takes n-gram drafts all the time."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("".join(f"the-key-of-{name}\n" for name in ("ana", *OTHERS)))
    keys.chmod(0o600)
    with VerifyNode() as verify, draft_node(verify.endpoint, *BARE, "--api-key", str(keys)) as (_, url):
        yield url


def ask(url: str, user: str) -> dict[str, Any]:
    """A text that never drafts for itself; returns its `usage.goodspeed`."""
    with official(url, f"the-key-of-{user}") as client:
        answer = client.completions.create(model=MODEL, prompt=prompt(0), max_tokens=NUM_TOKENS, **SAMPLED)
    assert answer.choices[0].text == generated(prompt(0), NUM_TOKENS, **SAMPLED)
    return dict(answer.usage.model_dump()["goodspeed"])


def test_what_ana_was_told_drafts_for_ana_and_for_nobody_else(url: str) -> None:
    fresh = ask(url, "ana")
    assert (fresh["drafted"], fresh["rounds"]) == (0, NUM_TOKENS)
    num_accepted = num_tries = 0
    while num_accepted < NUM_TOKENS and num_tries < MAX_TRIES:
        again, num_tries = ask(url, "ana"), num_tries + 1
        num_accepted += again["accepted_by"]["ngram"]
        assert again["rounds"] == NUM_TOKENS - again["accepted"]
    assert num_accepted >= NUM_TOKENS
    for user in OTHERS:
        assert ask(url, user) == fresh


def test_what_ana_has_sent_is_read_again_for_everybody_but_ana(url: str) -> None:
    text = "\n".join(prompt(number) for number in range(1, 6))

    def num_cached(user: str, **extension: Any) -> int:
        with official(url, f"the-key-of-{user}") as client:
            body = {"goodspeed": extension}
            answer = client.completions.create(model=MODEL, prompt=text, max_tokens=8, temperature=0, extra_body=body)
        assert answer.choices[0].text == generated(text, 8, temperature=0.0)
        number: int = answer.usage.model_dump()["prompt_tokens_details"]["cached_tokens"]
        assert 0 <= number < answer.usage.prompt_tokens
        return number

    assert num_cached("ana") == 0
    assert num_cached("ana") > 64
    assert num_cached("ana", prefix_cache=False) == 0
    assert [num_cached(user) for user in OTHERS] == [0] * len(OTHERS)
