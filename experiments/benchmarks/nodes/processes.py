"""A verify node and draft nodes as processes, given more and more prompts at once."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from goodspeed.app.demo.commands import environment
from goodspeed.app.demo.processes import Child, Event, Household
from goodspeed.embedded import prompts
from goodspeed.serving.prompts import Prompt, to_json

START_S = 120.0
DRAFT_MODELS = ("tiny-draft-m", "tiny-draft-s")  # one node each; two cores bear no more
BUDGET_PER_SESSION = 3


class Watch:
    """The processes' events since the last look."""

    def __init__(self) -> None:
        self.finished: asyncio.Queue[Event] = asyncio.Queue()
        self.rounds: list[Event] = []

    def verify(self, event: Event) -> None:
        if event["event"] == "round":
            self.rounds.append(event)

    def draft(self, event: Event) -> None:
        if event["event"] in ("finish", "fail"):
            self.finished.put_nowait(event)


async def measure(
    num_nodes: int, session_counts: Sequence[int], max_tokens: int, show: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Measures each number of sessions in turn, served together by the same num_nodes draft nodes."""
    watch = Watch()
    async with Household(environment()) as house:
        budget = BUDGET_PER_SESSION * max(session_counts)
        verify = await house.start("the verify node", verify_command(budget), watch.verify)
        endpoint = str((await verify.expect("ready", START_S))["endpoint"])
        models, most = DRAFT_MODELS[:num_nodes], -(-max(session_counts) // num_nodes)
        commands = [draft_command(model, endpoint, most, max_tokens) for model in models]
        drafts = [
            await house.start(f"draft node {model}", command, watch.draft, takes_input=True)
            for model, command in zip(models, commands, strict=True)
        ]
        await asyncio.gather(*(draft.expect("connected", START_S) for draft in drafts))
        await serve(watch, verify, drafts, 2)  # warms everybody up
        results = []
        for count in session_counts:
            results.append(await serve(watch, verify, drafts, count))
            show(results[-1])
        return results


async def serve(watch: Watch, verify: Child, drafts: Sequence[Child], num_sessions: int) -> dict[str, Any]:
    """Deals out prompts of all domains in turn, and waits until the last is finished."""
    watch.rounds.clear()
    before, started = memory_bytes(verify), time.perf_counter()
    for number, line in enumerate(prompts.load()[:num_sessions]):
        write(drafts[number % len(drafts)], Prompt(line.prompt, line.domain, line.seed))
    finished = [await asyncio.wait_for(watch.finished.get(), START_S) for _ in range(num_sessions)]
    elapsed = time.perf_counter() - started
    failed = [event for event in finished if event["event"] == "fail"]
    if failed:
        raise RuntimeError(f"a prompt failed: {failed[0]['what']}")
    num_tokens, num_drafted, num_accepted = (
        sum(event[key] for event in finished) for key in ("num_tokens", "num_drafted", "num_accepted")
    )
    return {
        "num_sessions": num_sessions,
        "num_tokens": num_tokens,
        "tokens_per_s": num_tokens / elapsed,
        "num_rounds": len(watch.rounds),
        "between_rounds_s": elapsed / max(1, len(watch.rounds)),
        "acceptance_rate": num_accepted / num_drafted if num_drafted else 0.0,
        "verify_node_grew_bytes": memory_bytes(verify) - before,
    }


def write(draft: Child, prompt: Prompt) -> None:
    if draft.process.stdin is None:
        raise RuntimeError(f"{draft.name} was started without standard input")
    draft.process.stdin.write(to_json(prompt).encode() + b"\n")


def memory_bytes(child: Child) -> int:
    """Returns the resident memory of a process, by Linux's account."""
    pages = Path(f"/proc/{child.process.pid}/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def verify_command(budget: int) -> list[str]:
    return command("verify_node", "--model=tiny-target", "--bind=tcp://127.0.0.1:0", f"--budget={budget}")


def draft_command(model: str, endpoint: str, max_sessions: int, max_tokens: int) -> list[str]:
    options = (f"--name={model}", "--prompts=-", f"--max-sessions={max_sessions}", f"--max-tokens={max_tokens}")
    return command("draft_node", f"--model={model}", f"--verify={endpoint}", *options)


def command(module: str, *options: str) -> list[str]:
    return [sys.executable, "-m", module, *options, "--json", "--log-level=error"]
