"""What drafting ahead of a verdict brings one session, the farther away the verify node is.

Real processes: one verify node, and two draft nodes behind a proxy that lengthens the round trip, one with
--draft-ahead and one with --no-draft-ahead. They get the same prompts and seeds by turns, one at a time, from the
domain that the draft model is best at and from one that it is bad at. The text is the same, so only the time differs.
Lengths are the policy's own, as the verify node gives them by default: it knows what time costs, and what part of the
way there and back drafting ahead hides.

It takes about a minute on two cores; about 20 s with --quick.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from experiments.benchmarks.processes import START_S, command
from goodspeed.app.demo.commands import environment
from goodspeed.app.demo.processes import Child, Household
from goodspeed.embedded.prompts import load
from goodspeed.text import prompts
from goodspeed.text.prompts import Prompt
from tests.faults.proxy import Proxy

DOMAINS = ("chat", "docs")
WANTED = 1.2
"""Wanted ratio of tokens/s with over without, for one session at 20 ms on the first of the domains."""

PROMPT_S = 120.0


@dataclass(frozen=True)
class Size:
    round_trips_ms: tuple[float, ...]
    repetitions: int
    max_tokens: int


FULL = Size((0.0, 20.0, 100.0), 3, 64)
QUICK = Size((20.0,), 1, 24)


@dataclass
class Row:
    """The result of one setting on one domain at one distance; medians over the prompts."""

    domain: str
    round_trip_ms: float
    ahead: bool
    tokens_per_s: float = 0.0
    acceptance_rate: float = 0.0
    num_ahead: int = 0
    came_true: float = 0.0  # share of the assumptions
    results: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def add(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        self.tokens_per_s = statistics.median(each["num_tokens"] / each["elapsed_s"] for each in self.results)
        self.acceptance_rate = self._total("num_accepted") / max(1, self._total("num_drafted"))
        self.num_ahead = self._total("num_ahead")
        self.came_true = self._total("num_ahead_true") / max(1, self.num_ahead)

    def _total(self, key: str) -> int:
        return sum(result[key] for result in self.results)

    def report(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "results"}


class DraftNode:
    """A draft node's process that serves one prompt after another."""

    def __init__(self) -> None:
        self.finished: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.child: Child | None = None

    def hear(self, event: dict[str, Any]) -> None:
        if event["event"] in ("finish", "fail"):
            self.finished.put_nowait(event)

    async def serve(self, prompt: Prompt) -> dict[str, Any]:
        """Returns the `finish` event of this prompt."""
        stdin = self.child.process.stdin if self.child else None
        if stdin is None:
            raise RuntimeError("the draft node was not started with standard input")
        stdin.write(prompts.to_json(prompt).encode() + b"\n")
        await stdin.drain()
        event = await asyncio.wait_for(self.finished.get(), PROMPT_S)
        if event["event"] != "finish":
            raise RuntimeError(f"a prompt failed: {event}")
        return event


async def measure(options: argparse.Namespace, size: Size) -> list[Row]:
    async with Household(environment()) as house:
        verify = await house.start("the verify node", verify_command(options), lambda event: None)
        endpoint = (await verify.expect("ready", START_S))["endpoint"]
        with Proxy(endpoint) as proxy:
            nodes = {ahead: DraftNode() for ahead in (False, True)}
            for ahead, node in nodes.items():
                words = draft_command(options, size, proxy.port, ahead)
                node.child = await house.start(words[-1], words, node.hear, takes_input=True)
            await asyncio.gather(*(node.child.expect("connected", START_S) for node in nodes.values() if node.child))
            return await run(nodes, proxy, size)


async def run(nodes: dict[bool, DraftNode], proxy: Proxy, size: Size) -> list[Row]:
    rows: list[Row] = []
    for domain in DOMAINS:
        wanted = [Prompt(prompt.prompt, domain, prompt.seed) for prompt in load() if prompt.domain == domain]
        for node in nodes.values():
            proxy.delay_s = 0.0
            await node.serve(wanted[-1])  # warms up
        for round_trip_ms in size.round_trips_ms:
            proxy.delay_s = round_trip_ms / 2000
            pair = {ahead: Row(domain, round_trip_ms, ahead) for ahead in nodes}
            for number, prompt in enumerate(wanted[: size.repetitions]):
                for ahead in (True, False) if number % 2 else (False, True):
                    pair[ahead].add(await nodes[ahead].serve(prompt))
            rows += pair.values()
    return rows


def verify_command(options: argparse.Namespace) -> list[str]:
    words = [f"--model={options.model}", "--bind=tcp://127.0.0.1:0", f"--budget={options.budget}"]
    return command("verify_node", *words, f"--cost={options.cost}")


def draft_command(options: argparse.Namespace, size: Size, port: int, ahead: bool) -> list[str]:
    words = [
        f"--model={options.draft_model}",
        f"--verify=tcp://127.0.0.1:{port}",
        "--prompts=-",
        f"--max-tokens={size.max_tokens}",
        "--max-sessions=1",
        "--draft-ahead" if ahead else "--no-draft-ahead",
    ]
    return command("draft_node", *words)


def ratios(rows: list[Row]) -> list[dict[str, Any]]:
    """Returns ratios of with over without: medians of the prompts' own ratios, since the texts are the same."""
    found = []
    for plain, ahead in zip(rows[::2], rows[1::2], strict=True):
        each = [
            without["elapsed_s"] / with_["elapsed_s"]
            for without, with_ in zip(plain.results, ahead.results, strict=True)
        ]
        same = all(a["token_ids"] == b["token_ids"] for a, b in zip(plain.results, ahead.results, strict=True))
        ratio = {"domain": plain.domain, "round_trip_ms": plain.round_trip_ms}
        found.append(ratio | {"speedup": statistics.median(each), "same_texts": same})
    return found


def table(rows: list[Row], found: list[dict[str, Any]]) -> str:
    lines = [f"{'domain':>8} {'ms':>5} {'ahead':>6} {'tokens/s':>9} {'accepted':>9} {'came true':>10}"]
    for row in rows:
        came_true = f"{row.came_true:10.2f}" if row.num_ahead else f"{'-':>10}"
        lines.append(
            f"{row.domain:>8} {row.round_trip_ms:5.0f} {'yes' if row.ahead else 'no':>6} {row.tokens_per_s:9.1f} "
            f"{row.acceptance_rate:9.2f} {came_true}"
        )
    lines += [
        f"{ratio['domain']} at {ratio['round_trip_ms']:.0f} ms: {ratio['speedup']:.2f}x"
        + ("" if ratio["same_texts"] else " (texts parted at a near-tie)")
        for ratio in found
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.ahead", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 ms only, fewer repetitions")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--model", default="tiny-target", help="target model")
    parser.add_argument("--draft-model", default="tiny-draft-s")
    parser.add_argument("--budget", type=int, default=8, help="longest draft")
    parser.add_argument("--cost", default="auto", help="what a round's time costs the policy")
    options = parser.parse_args()
    say = partial(print, file=sys.stderr if options.json else sys.stdout)
    rows = asyncio.run(measure(options, QUICK if options.quick else FULL))
    found = ratios(rows)
    say(table(rows, found))
    near = next(ratio for ratio in found if ratio["domain"] == DOMAINS[0] and ratio["round_trip_ms"] == 20.0)
    reached = near["speedup"] >= WANTED
    say(f"wanted at 20 ms on {DOMAINS[0]}: at least {WANTED}x; {'reached' if reached else 'missed'}")
    if options.json:
        result = {"benchmark": "ahead", "budget": options.budget, "rows": [row.report() for row in rows]}
        print(json.dumps(result | {"ratios": found, "wanted": WANTED, "reached": reached}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
