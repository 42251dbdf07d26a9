"""One verify node and five draft nodes, each behind a bad line of its own: faults of all kinds at the same time.

They are started once for all tests that use them; each test leaves them whole and connected.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.faults.nodes import DraftNode, VerifyNode
from tests.faults.proxy import Proxy
from tests.faults.texts import Stream, Wanted, ask, mixed

NAMES = ("frail", "stopped", "cut", "reset", "far")
PATIENCE_S = 1.0
"""For so long the frail node waits for an absent verify node; the others wait for a minute."""

NUM_TEXTS = 3  # at once, of each draft node
NUM_TOKENS = {"far": 40}
"""Of a text: a round trip of a second brings a few of them."""


@dataclass
class Site:
    """Who takes part."""

    verify: VerifyNode
    lines: dict[str, Proxy] = field(default_factory=dict)
    drafts: dict[str, DraftNode] = field(default_factory=dict)

    def ask(self, num_tokens: int, names: tuple[str, ...] = NAMES) -> dict[str, list[Stream]]:
        """Texts of every kind, when all of them have begun."""
        wanted = {name: _wanted(index, NUM_TOKENS.get(name, num_tokens)) for index, name in enumerate(names)}
        streams = {name: [ask(self.drafts[name].url, one) for one in wanted[name]] for name in names}
        for name in names:
            for stream in streams[name]:
                stream.wait_for(3)
        return streams

    def wait_until_ready(self) -> None:
        self.verify.wait_for_metric("peers_connected", lambda num: num >= len(NAMES))
        for draft in self.drafts.values():
            draft.wait_until_ready()


def _wanted(index: int, num_tokens: int) -> list[Wanted]:
    texts = mixed(num_tokens)
    return [texts[(index * NUM_TEXTS + n) % len(texts)] for n in range(NUM_TEXTS)]


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """`far` is always a second away, there and back, and `stopped` 300 ms."""
    with ExitStack() as stack:
        here = Site(stack.enter_context(VerifyNode()))
        for name in NAMES:
            line = here.lines[name] = stack.enter_context(Proxy(here.verify.endpoint))
            options = ("--name", name, *(("--connect-timeout-s", str(PATIENCE_S)) if name == "frail" else ()))
            here.drafts[name] = stack.enter_context(DraftNode(line.endpoint, *options))
        here.lines["far"].delay_s = 0.5
        here.lines["stopped"].delay_s = 0.15
        here.wait_until_ready()
        yield here
