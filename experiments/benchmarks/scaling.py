"""Scales sessions and contexts of a verify node: tokens a second, a round's time, memory per session.

The real core and target in this process, on drafts made beforehand (`oracle.py`): 1 to 64 draft nodes of
one session each, every one of which has its draft there before the round; a drafted token is the target's own with
probability 0.8. A context counts prompt and answer. `round` is all that the verify node's process does in a round but
for sockets and waiting: `target` is the forward pass and verification, `node` the rest (decode and check drafts, plan,
observe, allocate, encode verdicts), which ought to cost the same per session however many there are. `client` is what
a draft node does per session and round besides drafting. `KV` is the pages that a session holds, `grown` what the
process gained, with the one prompt that was prefilled for all (so look at many sessions). With one thread the time is
the process's own, without waiting for a core.

It takes about 2 minutes; about 10 s with --quick.
"""

import ctypes
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from experiments.benchmarks.nodes.oracle import MAX_BYTES, Node, Text, clients, pack, page_bytes
from experiments.benchmarks.nodes.played import Client
from experiments.harness import benchmark, styles
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.wire.codec import decode_down

ACCEPTANCE = 0.8
BUDGET_PER_SESSION = 3
NUM_NEW = 96  # tokens that every session may be given: more than the rounds below give
WARM_UP = 3


@dataclass(frozen=True)
class Plan:
    contexts: tuple[int, ...]
    session_counts: tuple[int, ...]
    num_rounds: int


FULL = Plan((128, 512, 2048), (1, 2, 4, 8, 16, 32, 64), 12)
QUICK = Plan((64,), (1, 8), 4)


@dataclass
class Rounds:
    """Seconds of each round's parts, and the rounds' counts."""

    target: list[float] = field(default_factory=list)
    node: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # given to all sessions


class Recorded:
    """One case: a number of sessions at one context, round after round."""

    def __init__(self, checkpoint: Checkpoint, text: Text, num_sessions: int) -> None:
        context = len(text.prompt) + len(text.continuation)
        self.text, self.rounds = text, Rounds()
        self.node = Node(checkpoint, num_sessions, context, BUDGET_PER_SESSION * num_sessions)
        self.clients = clients(checkpoint, text, ACCEPTANCE, num_sessions)
        self.before = memory_bytes()
        self.node.open(self.clients)
        self.waiting: list[tuple[Client, bytes]] = []  # drafts on their way

    def run(self, num_rounds: int) -> None:
        by_peer = {client.hello.boot_id: client for client in self.clients}
        for _ in range(num_rounds):
            started = clock()
            for client, data in self.waiting:
                self.node.receive(client, data, time.monotonic())
            planned = self.node.plan(time.monotonic())
            ready = clock()
            result = self.node.target.run(planned)
            verified = clock()
            verdicts = self.node.finish(result, time.monotonic())
            num_tokens, finished = self.num_tokens, clock()
            heard = [
                (by_peer[peer_id], by_peer[peer_id].hear(decode_down(data, MAX_BYTES))) for peer_id, data in verdicts
            ]
            told = clock()
            self.waiting = [(client, pack(message)) for client, actions in heard for message in client.send(actions)]
            self.rounds.node.append(ready - started + finished - verified)
            self.rounds.target.append(verified - ready)
            self.rounds.client.append(told - finished)
            self.rounds.tokens.append(self.num_tokens - num_tokens)

    @property
    def num_tokens(self) -> int:
        return sum(client.session.statistics.num_tokens for client in self.clients)

    def result(self) -> dict[str, Any]:
        """Returns medians over rounds, and tokens per second over their total time."""
        num_sessions, rounds = len(self.clients), self.rounds
        seconds = [target + node for target, node in zip(rounds.target, rounds.node, strict=True)]
        counts = [client.session.statistics for client in self.clients]
        pool, runner = self.node.core.pool, self.node.target.runner
        num_pages = sum(len(pool.table(client.session.request.session_id)) for client in self.clients)
        return {
            "num_sessions": num_sessions,
            "context": len(self.text.prompt) + len(self.text.continuation),
            "tokens_per_s": sum(rounds.tokens) / sum(seconds),
            "tokens_per_session_and_round": statistics.fmean(rounds.tokens) / num_sessions,
            "round_s": statistics.median(seconds),
            "target_s": statistics.median(rounds.target),
            "node_s_per_session": statistics.median(rounds.node) / num_sessions,
            "client_s_per_session": statistics.median(rounds.client) / num_sessions,
            "draft_acceptance_rate": sum(c.num_accepted for c in counts) / max(1, sum(c.num_drafted for c in counts)),
            "num_deviating": sum(not self._as_recorded(client) for client in self.clients),
            "kv_bytes_per_session": num_pages * page_bytes(runner) // num_sessions,
            "grown_bytes_per_session": (memory_bytes() - self.before) // num_sessions,
        }

    def _as_recorded(self, client: Client) -> bool:
        """True if the target wrote its own text again; rounding may decide otherwise once in 10^5 tokens."""
        given = client.session.committed
        return given == self.text.continuation[: len(given)]


def clock() -> float:
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def memory_bytes() -> int:
    """Returns this process's resident memory, by Linux's account, without free memory that the allocator keeps."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the GNU C library has it
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def measure_recorded(plan: Plan, show: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    checkpoint, results = checkpoints.load("tiny-target"), []
    for context in plan.contexts:
        text = Text.write(checkpoint, context, min(NUM_NEW, context // 2))
        for num_sessions in plan.session_counts:
            case = Recorded(checkpoint, text, num_sessions)
            case.run(WARM_UP)
            case.rounds = Rounds()
            case.run(plan.num_rounds)
            results.append(case.result())
            show(results[-1])
            del case  # and its memory, before the next one's is looked at
            gc.collect()
    return results


def draw(recorded: Sequence[dict[str, Any]], file: Path) -> None:
    """Plots tokens per second, a round's time, and the cost of one more session over the number of sessions."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    speed, duration, cost = figure.subplots(1, 3)
    contexts = sorted({result["context"] for result in recorded})
    for place, context in enumerate(contexts):
        rows = [result for result in recorded if result["context"] == context]
        numbers, label = [row["num_sessions"] for row in rows], f"context {context}"
        style = styles.curve(place) | styles.breadth(place, len(contexts))
        speed.plot(numbers, [row["tokens_per_s"] for row in rows], label=label, **style)
        duration.plot(numbers, [row["round_s"] * 1e3 for row in rows], label=label, **style)
        cost.plot(numbers, [row["node_s_per_session"] * 1e6 for row in rows], label=label, **style)
    speed.set(ylabel="tokens a second", title="all sessions together")
    duration.set(ylabel="ms", yscale="log", title="verify node: one round")
    cost.set(ylabel="us a session", ylim=(0, None), title="verify node: a round beside the target model")
    for axes in (speed, duration, cost):
        axes.set(xlabel="sessions")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(file, dpi=120, format="png")


def show_recorded(result: dict[str, Any]) -> None:
    print(
        f"{result['context']:>7} {result['num_sessions']:>8} {result['tokens_per_s']:>8.0f}"
        f" {result['tokens_per_session_and_round']:>12.2f} {result['round_s'] * 1e3:>8.1f}"
        f" {result['target_s'] * 1e3:>9.1f} {result['node_s_per_session'] * 1e6:>15.0f}"
        f" {result['client_s_per_session'] * 1e6:>17.0f} {result['kv_bytes_per_session'] / 1e6:>14.1f}"
        f" {result['grown_bytes_per_session'] / 1e6:>17.1f}",
        flush=True,
    )


RECORDED = (
    "context sessions tokens/s tokens/round round ms target ms node us/session client us/session"
    " KV MB/session grown MB/session"
)


def main(argv: list[str] | None = None) -> int:
    parser = benchmark.parser("scaling", __doc__, "fewer sessions, contexts and rounds")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write a picture (PNG) there")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    plan = QUICK if options.quick else FULL
    print(f"recorded drafts, accepted with probability {ACCEPTANCE}\n{RECORDED}")
    recorded = measure_recorded(plan, show_recorded)
    if options.figure:
        draw(recorded, options.figure)
    benchmark.report(options, {"plan": asdict(plan), "recorded": recorded})
    return 0


if __name__ == "__main__":
    sys.exit(main())
