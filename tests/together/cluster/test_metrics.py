"""Both nodes tell exactly the metrics that docs/METRICS.md lists, and each counter and histogram moves.

One verify node and one draft node, with real models, on a network in memory on which what shall go wrong does so once.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draft_node.config import DraftConfig
from draft_node.core.generation import Generation
from draft_node.http.metrics import DraftCollector
from draft_node.process import assembly as draft_assembly
from draft_node.process.daemon import DraftDaemon
from draft_node.service.output_processor import Ended
from draft_node.service.service import Service
from goodspeed.drafting.proposing import Proposed
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import Busy, RequestRefused
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.measuring.metrics import Registry, create_registry, exposition
from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.wire.codec import MAX_MESSAGE_BYTES, decode_down, encode
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.messages import Verdict
from tests.memory_network import MemoryNetwork, Packet, peer_name
from tests.together.cluster.cluster import prompt_ids, verify_daemon
from tests.waiting import until
from verify_node.process.daemon import VerifyDaemon
from verify_node.watch.metrics import VerifyCollector

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "docs/METRICS.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([\w, ]*)\|", re.MULTILINE)
NAME = re.compile(r"\bgoodspeed_\w+")
ASKING = [TABLES, *sorted((ROOT / "docker").rglob("*.json"))]  # pages and dashboards that ask for metrics by name
IDENTITY = b"draft-01"
PEER = peer_name(IDENTITY)
LONG, SHORT = 40, 4


# -- what is told, and what should be ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """One metric: as the document has it, or as a node serves it; `values` by their labels."""

    kind: str
    labels: frozenset[str]
    values: dict[tuple[str, ...], float] = field(default_factory=dict, compare=False)

    @property
    def total(self) -> float:
        return sum(self.values.values())


def documented(node: str) -> dict[str, Told]:
    """The tables of this node and of both."""
    sections = dict(section.split("\n", 1) for section in TABLES.read_text("utf-8").split("\n## ")[1:])
    found: dict[str, Told] = {}
    for title in (f"The {node} node", "Both nodes, on Linux"):
        for name, kind, labels in ROW.findall(sections[title]):
            assert name not in found, f"{name} is listed twice"
            found[name] = Told(kind, frozenset(labels.replace(" ", "").split(",")) - {""})
    return found


def served(registry: Registry) -> dict[str, Told]:
    text, _ = exposition(registry)
    found: dict[str, Told] = {}
    for family in text_string_to_metric_families(text.decode()):
        name = family.name + "_total" if family.type == "counter" else family.name
        wanted = family.name + "_count" if family.type == "histogram" else name
        samples = [sample for sample in family.samples if sample.name == wanted]
        labels = frozenset(label for sample in samples for label in sample.labels)
        found[name] = Told(family.type, labels, {tuple(sample.labels.values()): sample.value for sample in samples})
    return found


# -- the two nodes -----------------------------------------------------------------------------------------------------


class OneLost:
    """A fate: the first verdict that ends a text is lost. None follows it, so its session repeats its last message."""

    def __init__(self) -> None:
        self._has_lost = False

    def __call__(self, packet: Packet) -> Iterable[Packet]:
        verdict = decode_down(packet.data, MAX_MESSAGE_BYTES) if packet.direction == "down" else None
        if self._has_lost or not isinstance(verdict, Verdict) or verdict.finish_reason is None:
            return [packet]
        self._has_lost = True
        return []


class Pair:
    """A verify node with little memory, and a draft node with two places whose drafts are the target's own."""

    def __init__(self) -> None:
        self.checkpoint = checkpoints.load("tiny-target")  # a second one: each has a thread of its own
        self.network = MemoryNetwork(OneLost())
        self.verify = self._verify()
        self.draft = self._draft()
        self.answered = ResponseCounts()
        self.service = Service(self.draft, self.checkpoint, max_waiting=1)
        self.verify_registry = create_registry(VerifyCollector(self.verify.core, self.verify.channel))
        self.draft_registry = create_registry(DraftCollector(self.draft, self.service.stats, self.answered))

    def _verify(self) -> VerifyDaemon:
        elsewhere = "tcp://10.0.0.1:5555"  # no loopback, so the draft model is no rival of the target's and never rests
        memory: dict[str, Any] = {"kv_pages": 9, "budget": 4, "slo_tier": ("easy:tpot=1000s", "hard:tpot=0.1ms")}
        return verify_daemon(self.network, bind=elsewhere, trusted_network=True, **memory)

    def _draft(self) -> DraftDaemon:
        config = DraftConfig(name="a", model="tiny-target", max_sessions=2)
        channel = self.network.connect_draft(IDENTITY)
        return draft_assembly.build(config, self.checkpoint, channel, IDENTITY)

    async def play(self) -> None:
        """The workload, from start to end."""
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:  # a wait in vain
            serving = [tasks.create_task(node.serve()) for node in (self.verify, self.draft)]
            await self.draft.connected.wait()
            await self._write_well()
            await self._fail()
            await self._lose_each_other()
            await self._fail_to_draft()
            self.answered["/metrics", 200] += 1
            for task in serving:
                task.cancel()

    async def _write_well(self) -> None:
        """Two at once, who do not find room together, one that waits, and one too many."""
        slos = [self.service.slo_tiers.tier(name) for name in ("easy", "hard")]
        writing = [asyncio.ensure_future(self.write(index, LONG, slo=slos[index % 2])) for index in range(3)]
        while self.draft.core.queue.num_running < 2 or not self.draft.core.queue.num_waiting:
            await asyncio.sleep(0)
        with pytest.raises(Busy):
            await self.write(0, LONG)
        assert {ended.reason for ended in await asyncio.gather(*writing)} <= {"stop", "length"}

    async def _fail(self) -> None:
        """The target model fails once, and the round is made again; a prompt is too long; a user leaves."""
        run = self.verify.target.run

        def fail(planned: object) -> None:
            self.verify.target.run = run  # type: ignore[method-assign]
            raise RuntimeError("once")

        self.verify.target.run = fail  # type: ignore[method-assign,assignment]
        await self.write(0, SHORT)
        with pytest.raises(RequestRefused):
            await self.write(0, SHORT, prompt=(5,) * 2048)
        async with aclosing(self.service.write(self.generation(0, LONG))) as pieces:
            await anext(pieces)

    async def _lose_each_other(self) -> None:
        """Bytes that are no message, from this draft node once, from nobody too often; and a seeming restart."""
        for peer in (PEER, *(b"nobody",) * 200):
            self.network.deliver(Packet("up", peer, b"\xc1"))
        self._seem_to_restart()
        await until(lambda: self.draft.core.counts.num_connected >= 2 and self.verify.channel.traffic.num_gone)
        self.network.deliver(Packet("up", b"nobody", b"\xc1"))  # barred by now
        await self.write(1, SHORT)

    async def _fail_to_draft(self) -> None:
        """The draft model fails once; the text is written all the same."""
        step = self.draft.drafter.step

        def fail() -> list[Proposed]:
            self.draft.drafter.step = step  # type: ignore[method-assign]
            raise RuntimeError("once")

        self.draft.drafter.step = fail  # type: ignore[method-assign]
        await self.write(2, SHORT)

    def _seem_to_restart(self) -> None:
        """The verify node tells another boot id."""
        self.network.deliver(Packet("down", PEER, encode(Heartbeat(b"restarts"), MAX_MESSAGE_BYTES)))

    def generation(self, index: int, max_tokens: int, **changes: Any) -> Generation:
        asked = SamplingRequest(seed=0, temperature=0.0)
        prompt = changes.pop("prompt", prompt_ids(index)[:60])
        return self.service.generation(prompt, asked, max_tokens, **changes)

    async def write(self, index: int, max_tokens: int, **changes: Any) -> Ended:
        async for item in self.service.write(self.generation(index, max_tokens, **changes)):
            last = item
        assert isinstance(last, Ended)
        return last


@dataclass(frozen=True)
class Seen:
    """A node's metrics before and after the workload."""

    before: dict[str, Told]
    after: dict[str, Told]


@pytest.fixture(scope="module")
def seen() -> dict[str, Seen]:
    pair = Pair()
    registries = {"verify": pair.verify_registry, "draft": pair.draft_registry}
    before = {node: served(registry) for node, registry in registries.items()}
    asyncio.run(pair.play())
    return {node: Seen(before[node], served(registry)) for node, registry in registries.items()}


OF_OWN_MODEL = ("passes", "seconds", "draft_tokens", "accepted_tokens")
BY_SELECTION = {f"goodspeed_own_model_{what}_total" for what in OF_OWN_MODEL} | {
    *("goodspeed_alternative_tokens_total", "goodspeed_redirects_total", "goodspeed_redirected_total"),
    *("goodspeed_slo_promises_total", "goodspeed_slo_broken_promises_total", "goodspeed_slo_promised_requests_total"),
}
"""These move only where drafted tokens are selected, or in a fleet; this pair's verify node selects none, and is alone.
The tests of trees, own drafts, promises and redirects look at the counts, and tests below at what is served of them."""


def rows() -> Iterator[tuple[str, str]]:
    for node in ("verify", "draft"):
        for name, told in documented(node).items():
            if told.kind in ("counter", "histogram") and name.startswith("goodspeed_") and name not in BY_SELECTION:
                yield node, name


@pytest.mark.parametrize("node", ["verify", "draft"])
def test_exactly_the_documented_metrics_are_served(node: str, seen: dict[str, Seen]) -> None:
    assert seen[node].after == documented(node)
    assert seen[node].before.keys() == documented(node).keys()


@pytest.mark.parametrize(("node", "name"), list(rows()))
def test_it_moves(node: str, name: str, seen: dict[str, Seen]) -> None:
    assert seen[node].after[name].total > seen[node].before[name].total


def test_alternatives_are_told_by_what_became_of_them() -> None:
    pair = Pair()
    pair.verify.core.counts.num_alternatives, pair.verify.core.counts.num_alternatives_accepted = 5, 2
    told = served(pair.verify_registry)["goodspeed_alternative_tokens_total"]
    assert told.values == {("accepted",): 2.0, ("rejected",): 3.0}


def test_promises_are_told_by_what_became_of_them() -> None:
    pair = Pair()
    counts, texts = pair.verify.core.counts, pair.service.stats
    counts.promises["easy", "promised"], counts.broken["easy", "memory"] = 5, 2
    texts.slo_tokens["easy"], texts.promised["easy", "attained"] = 9, 3
    told = served(pair.verify_registry)
    assert told["goodspeed_slo_promises_total"].values["promised", "easy"] == 5.0
    assert told["goodspeed_slo_broken_promises_total"].values["memory", "easy"] == 2.0
    assert told["goodspeed_slo_promised"].total == 0.0
    told = served(pair.draft_registry)
    assert told["goodspeed_slo_promised_requests_total"].values["attained", "easy"] == 3.0


@pytest.mark.parametrize("file", ASKING, ids=lambda file: file.name)
def test_whoever_asks_for_a_metric_asks_for_one_that_is_there(file: Path) -> None:
    listed = {name for node in ("verify", "draft") for name in documented(node)}
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in NAME.findall(file.read_text("utf-8"))}
    assert named - {"goodspeed_"} <= listed
