"""The draft model fails, hangs, or has no memory: the texts go on as plain decoding, exact, and are drafted again."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from draft_node.model.circuit_breaker import DRAFTING_TIMEOUT_S
from tests import gguf_files
from tests.faults.texts import Stream, Wanted, ask, check_all, mixed
from tests.nodes import DEADLINE_S, DraftNode, VerifyNode

pytestmark = pytest.mark.nodes

NUM_PLAIN = 40  # tokens that each text gets while the draft model does not work

TAKEN = 2 << 30  # bytes that a step of the draft model takes; half as many are left, which is room for everything else


@pytest.fixture
def file(tmp_path: Path) -> Path:
    spoiled = tmp_path / "what"
    spoiled.write_text("works")
    return spoiled


def say(file: Path, what: str) -> None:
    """Writes the file at once and whole, since it is read at any moment."""
    new = file.with_suffix(".new")
    new.write_text(what)
    new.replace(file)


def start(verify: VerifyNode, file: Path, share: float = 1.0, model: tuple[str, ...] = ()) -> DraftNode:
    """Starts a draft node whose draft model `file` spoils.

    share: of the product's timeouts. model: options that name the draft model.
    """
    only_the_model = ("--drafter", "model")  # no n-gram hides what becomes of it
    return DraftNode(verify.endpoint, *only_the_model, *model, module=("tests.faults.sabotaged", str(file), str(share)))


def drafted(verify: VerifyNode, after: int) -> bool:
    """True if a draft was verified in a round that came as event number `after` or later."""
    rounds = (told for told in verify.events[after:] if told["event"] == "round")
    return any(row["num_verified"] for told in rounds for row in told["sessions"])


def begin(verify: VerifyNode, draft: DraftNode, wanted: list[Wanted]) -> list[Stream]:
    """Texts that are being drafted."""
    before = verify.num_events
    streams = [ask(draft.url, one) for one in wanted]
    verify.until(lambda: drafted(verify, before), "a draft")
    return streams


def go_on_plainly(verify: VerifyNode, streams: list[Stream]) -> None:
    """Every text goes on, and from some round on no draft is verified."""
    for _ in range(2):  # what was on its way comes first
        before = verify.num_events
        for stream in streams:
            stream.wait_for(len(stream.tokens) + NUM_PLAIN)
    assert not drafted(verify, before)


def write_until(found: Callable[[], bool], draft: DraftNode) -> None:
    """Writes texts until something is found: one text alone may end while the draft model rests."""
    deadline = time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < deadline, f"what is waited for does not come from {draft}"
        check_all([ask(draft.url, mixed(60)[3])])


def write_until_drafted(verify: VerifyNode, draft: DraftNode) -> None:
    """Texts are written however long the draft model is left alone."""
    before = verify.num_events
    write_until(lambda: drafted(verify, before), draft)


def num_hanging(draft: DraftNode) -> int:
    """Steps of the draft model that hung, as the node's log says while they do."""
    return sum("the draft model hangs; its sessions" in line.text for line in draft.log)


@contextmanager
def memory_limited(draft: DraftNode, num_bytes: int) -> Iterator[None]:
    """Leaves so much more of the process's address space, by the kernel."""
    pid = draft.process.pid
    num_bytes += int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


@pytest.mark.parametrize("model", [(), ("--model", gguf_files.made("tiny-draft-s"))], ids=["torch", "openvino"])
def test_no_memory_then_a_hanging_step_and_it_works_again(model: tuple[str, ...], file: Path) -> None:
    wanted = mixed(200)[:2]
    with VerifyNode() as verify, start(verify, file, share=0.2, model=model) as draft:
        draft.wait_until_ready()
        streams = begin(verify, draft, wanted)
        with memory_limited(draft, TAKEN // 2):
            say(file, f"takes {TAKEN}")  # not before: a step that has it already would raise the limit
            draft.wait_for_line("can't allocate memory")
            go_on_plainly(verify, streams)
        check_all(streams)
        write_until_drafted(verify, draft)

        streams = begin(verify, draft, wanted)
        say(file, "hangs")
        go_on_plainly(verify, streams)
        write_until(lambda: num_hanging(draft) > 0, draft)
        say(file, "works")
        check_all(streams)
        write_until_drafted(verify, draft)
        assert draft.metrics()["draft_failures_total"] >= 2

        before = num_hanging(draft)
        say(file, "hangs")
        write_until(lambda: num_hanging(draft) > before, draft)
        assert draft.terminate() == 0
        assert any("stopping without waiting for it" in line.text for line in draft.log)


@pytest.mark.slow_faults
def test_every_step_takes_ten_seconds(file: Path) -> None:
    """The patience is the product's own: nobody waits for longer than that, and those who come later do not wait."""
    wanted = mixed(300)[:2]
    with VerifyNode() as verify, start(verify, file) as draft:
        draft.wait_until_ready()
        streams = begin(verify, draft, wanted[:1])
        say(file, "slow 10")
        go_on_plainly(verify, streams)
        streams.append(ask(draft.url, wanted[1]))
        check_all(streams)
        for stream in streams:
            assert max(after - before for before, after in pairwise(stream.times)) < DRAFTING_TIMEOUT_S + 2.0
        write_until(lambda: draft.metrics()["draft_failures_total"] >= 1, draft)  # the texts may be over sooner
