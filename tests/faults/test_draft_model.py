"""The draft model fails, hangs, or has no memory: the texts go on as plain decoding, exact, and are drafted again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.nodes import DraftNode, VerifyNode
from tests.faults.texts import Stream, ask, check, mixed

NUM_PLAIN = 40
"""Tokens that each text gets while the draft model does not work."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    spoiled = tmp_path / "what"
    spoiled.write_text("works")
    return spoiled


def say(file: Path, what: str) -> None:
    """At once and whole: the file is read at any moment."""
    new = file.with_suffix(".new")
    new.write_text(what)
    new.replace(file)


def start(verify: VerifyNode, file: Path, share: float = 1.0) -> DraftNode:
    """share: of the product's patience with a draft model."""
    return DraftNode(verify.endpoint, module=("tests.faults.sabotaged", str(file), str(share)))


def drafted(after: int) -> Callable[[VerifyNode], bool]:
    """Whether a draft was verified in a round that came as event number `after` or later."""

    def found(verify: VerifyNode) -> bool:
        rounds = (told for told in verify.events[after:] if told["event"] == "round")
        return any(row["num_verified"] for told in rounds for row in told["sessions"])

    return found


def go_on_plainly(verify: VerifyNode, streams: list[Stream]) -> None:
    """Every text goes on, and from some round on no draft is verified."""
    for _ in range(2):  # what was on its way comes first
        before = verify.num_events
        for stream in streams:
            stream.wait_for(len(stream.tokens) + NUM_PLAIN)
    assert not drafted(before)(verify)


def test_it_raises_and_hangs_and_works_again(file: Path) -> None:
    wanted = mixed(600)[:2]
    with VerifyNode() as verify, start(verify, file, share=0.2) as draft:
        draft.wait_until_ready()
        streams = [ask(draft.url, one) for one in wanted]
        verify.until(lambda: drafted(0)(verify), "a draft")
        for what in ("raises", "hangs"):
            say(file, what)
            go_on_plainly(verify, streams)
            before = verify.num_events
            say(file, "works")
            verify.until(lambda after=before: drafted(after)(verify), "a draft, after the model works again")
        assert not any(stream.is_over for stream in streams)
        for one, stream in zip(wanted, streams, strict=True):
            check(one, stream.finish())
        assert draft.metrics()["draft_failures_total"] >= 2
