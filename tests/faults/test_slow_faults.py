"""Faults that take minutes: each of them on all lines at once, and by itself. Only `make faults` runs these."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path

import pytest

from tests.faults.conftest import NAMES, Site, make_keys
from tests.faults.proxy import Proxy
from tests.faults.test_together import sleep_until
from tests.faults.texts import Wanted, ask, check_all, mixed
from tests.nodes import DraftNode, VerifyNode

pytestmark = [pytest.mark.alone, pytest.mark.slow_faults]

STEADY = NAMES[1:]
NUM_TOKENS = 100


@contextmanager
def worse(site: Site, names: Sequence[str] = STEADY, **changes: float) -> Iterator[None]:
    """Lines that have these attributes meanwhile."""
    lines = [site.lines[name] for name in names]
    before = [{name: getattr(line, name) for name in changes} for line in lines]
    try:
        for line in lines:
            vars(line).update(changes)
        yield
    finally:
        for line, own in zip(lines, before, strict=True):
            vars(line).update(own)


def num_resets(site: Site) -> int:
    return sum(line.num_resets for line in site.lines.values())


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_resets_by_the_message(site: Site, share: float) -> None:
    """Each chunk of bytes, about a message, resets its connection instead of coming through with this probability."""
    if share == 0.1 and site.has_keys:
        pytest.skip("an encrypted handshake and a Hello are twenty messages: hardly any connection would do any work")
    # a connection with 0.1 lives for a second or two, in which nothing comes back to a node that is a second away
    names = STEADY if share < 0.1 else STEADY[:-1]
    streams = site.ask(NUM_TOKENS if share < 0.1 else 40, names)
    before = num_resets(site)
    with worse(site, names, chunk_reset_share=share):
        check_all(chain(*streams.values()))
    print(f"resets: {num_resets(site) - before}")
    assert num_resets(site) > before
    site.wait_until_ready()


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_resets_by_the_second(site: Site, share: float) -> None:
    """Each second a connection is reset with this probability, while texts follow each other."""
    before = num_resets(site)
    with worse(site, reset_share=share):
        begun = time.monotonic()
        while time.monotonic() < begun + 60 or num_resets(site) == before:
            check_all([ask(site.drafts[name].url, one) for name in STEADY[:-1] for one in mixed(NUM_TOKENS)[:2]])
    print(f"resets: {num_resets(site) - before}")
    site.wait_until_ready()


@pytest.mark.parametrize("delay_s", [0.15, 0.5])
def test_long_ways(site: Site, delay_s: float) -> None:
    """300 ms and a second there and back for everybody, with jitter."""
    with worse(site, NAMES, delay_s=delay_s, jitter_s=delay_s / 5):
        check_all(chain(*site.ask(60, STEADY).values()))


def test_with_keys_a_far_node_gets_in_at_its_first_attempt(tmp_path: Path) -> None:
    """Five ways there and back, of 1.2 s: longer than it may be silent later on."""
    folder = make_keys(tmp_path)
    with (
        VerifyNode("--key", f"{folder}/verify.key", "--enrolled", f"{folder}/enrolled") as verify,
        Proxy(verify.endpoint) as line,
    ):
        line.delay_s = 0.6
        with DraftNode(line.endpoint, "--key", f"{folder}/far.key", "--verify-key", f"{folder}/verify.pub") as draft:
            draft.wait_until_ready()
            check_all([ask(draft.url, one) for one in mixed(20)[:2]])
            assert line.num_connections == 1
            assert not any("reconnecting" in log.text for log in draft.log)


@pytest.mark.parametrize(
    "fault",
    [Proxy.cut, Proxy.blackhole, Proxy.half_open, lambda line: line.half_open("down")],
    ids=["cut", "blackhole", "dead_up", "dead_down"],
)
def test_all_lines_at_once(site: Site, fault: Callable[[Proxy], None]) -> None:
    streams = site.ask_and_strike(NUM_TOKENS, STEADY)
    begun = time.monotonic()
    for name in STEADY:
        fault(site.lines[name])
    sleep_until(begun + 5)
    for name in STEADY:
        site.lines[name].heal()
    check_all(chain(*streams.values()))
    site.wait_until_ready()


def test_the_verify_node_is_killed_again_and_again(site: Site) -> None:
    streams = site.ask_and_strike(NUM_TOKENS, STEADY)
    for _ in range(3):
        before = site.verify.num_events
        site.verify.restart()
        site.verify.wait_for("ready", after=before)
        site.verify.wait_for_metric("generation_tokens_total", lambda num: num >= 30)
    check_all(chain(*streams.values()))
    site.wait_until_ready()


def test_heartbeats_are_answered_during_a_long_forward_pass() -> None:
    """Prompts that take longer than the timeout in one pass: nobody takes anybody for gone."""
    words = " ".join(one.prompt for one in mixed(1))
    prompts = [Wanted(f"{n} " + (words * 4)[: 3300 + n], 4) for n in range(24)]
    with VerifyNode(max_round_tokens=65536) as verify, DraftNode(verify.endpoint, "--max-sessions", "24") as draft:
        draft.wait_until_ready()
        check_all([ask(draft.url, one) for one in prompts])
        longest_s = max(after["heard_at"] - before["heard_at"] for before, after in pairwise(verify.events))
        rounds = [event for event in verify.events if event["event"] == "round"]
        print(f"longest round: {longest_s:.1f} s, {max(event['num_tokens'] for event in rounds)} tokens")
        assert longest_s > 3.0
        assert not any("is away" in line.text for line in draft.log)
        assert not any("was lost" in line.text for line in verify.log)
