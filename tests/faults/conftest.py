"""One verify node and five draft nodes, each behind a bad line of its own: faults of all kinds at the same time.

They are started once for all tests that use them, and once more with keys for `make faults`; each test leaves them
whole and connected.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from goodspeed.wire import keys
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.zmq.authentication import new_pair
from tests.faults.proxy import Proxy
from tests.faults.texts import Stream, Wanted, begin, mixed
from tests.nodes import DraftNode, VerifyNode

NAMES = ("frail", "stopped", "cut", "reset", "far")
CONNECT_TIMEOUTS_S = {"frail": 1.0}
LONG_CONNECT_TIMEOUT_S = 600.0
"""Nodes wait so long for an absent verify node; a restart takes half a minute where the machine is busy."""

NUM_TEXTS = 3  # at once, of each draft node
NUM_TOKENS = {"frail": 1500, "far": 300}
"""The tokens of a text, where the test's number is too small: one that is to break must not be over."""


@dataclass
class Site:
    """The nodes that take part, and the lines between them."""

    verify: VerifyNode
    has_keys: bool
    lines: dict[str, Proxy] = field(default_factory=dict)
    drafts: dict[str, DraftNode] = field(default_factory=dict)

    def ask(self, num_tokens: int, names: tuple[str, ...] = NAMES) -> dict[str, list[Stream]]:
        """Texts of every kind, when all of them have begun; says how many are over by then, on a slow machine."""
        self.wait_until_ready()
        streams: dict[str, list[Stream]] = {}
        for name in sorted(names, key=lambda name: -self.lines[name].delay_s):  # the far ones take longest to begin
            wanted = _wanted(names.index(name), NUM_TOKENS.get(name, num_tokens))
            streams[name] = begin(self.drafts[name].url, wanted, 2)
        print(f"over before the fault: {sum(stream.is_over for stream in chain(*streams.values()))}")
        return streams

    def ask_and_strike(self, num_tokens: int, names: tuple[str, ...] = NAMES) -> dict[str, list[Stream]]:
        """The same for a fault that comes now: each node has a text that it strikes."""
        streams = self.ask(num_tokens, names)
        for name in names:
            assert not all(stream.is_over for stream in streams[name]), f"no fault of {name} would strike a text"
        return streams

    def wait_until_ready(self) -> None:
        self.verify.wait_for_metric("peers_connected", lambda num: num >= len(NAMES))
        for draft in self.drafts.values():
            draft.wait_until_ready()


def _wanted(index: int, num_tokens: int) -> list[Wanted]:
    texts = mixed(num_tokens)
    return [texts[(index * NUM_TEXTS + n) % len(texts)] for n in range(NUM_TEXTS)]


@pytest.fixture(scope="session", params=["open", pytest.param("keyed", marks=pytest.mark.slow_faults)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`far` is always a second away, there and back, and `stopped` 300 ms."""
    folder = make_keys(tmp_path_factory.mktemp("keys")) if request.param == "keyed" else None
    with ExitStack() as stack:
        words = ("--key", f"{folder}/verify.key", "--enrolled", f"{folder}/enrolled") if folder else ()
        here = Site(stack.enter_context(VerifyNode(*words)), folder is not None)
        for name in NAMES:
            line = here.lines[name] = stack.enter_context(Proxy(here.verify.endpoint))
            options = ("--connect-timeout-s", str(CONNECT_TIMEOUTS_S.get(name, LONG_CONNECT_TIMEOUT_S)))
            who = ("--key", f"{folder}/{name}.key", "--verify-key", f"{folder}/verify.pub") if folder else ()
            here.drafts[name] = stack.enter_context(DraftNode(line.endpoint, *(who or ("--name", name)), *options))
        here.lines["far"].delay_s = 0.5
        here.lines["stopped"].delay_s = 0.15
        here.wait_until_ready()
        yield here


def make_keys(folder: Path, names: Iterable[str] = NAMES) -> Path:
    """Makes the keys of the verify node and of these draft nodes, and enrols these."""
    pair = new_pair()
    keys.write_secret(folder / "verify.key", pair)
    keys.write_verify_key(folder / "verify.pub", pair.public_key)
    (folder / "enrolled").mkdir()
    for name in names:
        pair = new_pair(name)
        keys.write_secret(folder / f"{name}.key", pair)
        keys.write_enrolled(folder / "enrolled" / f"{name}.pub", Enrolled(name, pair.public_key))
    return folder
