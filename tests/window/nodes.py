"""A small real run to look at: one verify node with its window, and draft nodes that have texts to write for long."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goodspeed.tiny import prompts

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
MODELS = ("tiny-draft-s", "tiny-draft-m")
MAX_TOKENS = 400


@dataclass
class Node:
    """One process; its events are read to the end, or its pipe would fill up."""

    process: "subprocess.Popen[str]"
    ready: dict[str, Any]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Run:
    """Who takes part."""

    verify: Node
    drafts: dict[str, Node] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return str(self.verify.ready["url"])


@contextmanager
def running(num_clients: int, folder: Path, *verify_options: str, http: str = "127.0.0.1:0") -> Iterator[Run]:
    """All nodes are there; draft nodes may still be about to connect."""
    with ExitStack() as stack:
        verify = stack.enter_context(start_verify(*verify_options, http=http))
        waiting = [stack.enter_context(_spawn(_draft(i, verify, folder))) for i in range(num_clients)]
        yield Run(verify, {f"client-{i + 1}": _ready(process) for i, process in enumerate(waiting)})


@contextmanager
def start_verify(*options: str, http: str) -> Iterator[Node]:
    words = ["verify_node", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0", "--cost", "none", "--http", http]
    with _spawn([*words, "--json", *options]) as process:
        yield _ready(process)


def _draft(index: int, verify: Node, folder: Path) -> list[str]:
    """Each has its own kind of text; enough of them that it never runs out."""
    all_prompts = prompts.demo()
    file = folder / f"prompts-{index}.jsonl"
    line = json.dumps({"prompt": all_prompts[index % len(all_prompts)].prompt})
    file.write_text(f"{line}\n" * 1000, "utf-8")
    model, endpoint = MODELS[index % len(MODELS)], verify.ready["endpoint"]
    words = [
        "draft_node",
        "--model",
        model,
        "--verify",
        endpoint,
        "--name",
        f"client-{index + 1}",
        "--prompts",
        str(file),
    ]
    return [*words, "--max-tokens", str(MAX_TOKENS), "--max-sessions", str(1 + index % 2), "--seed", "7", "--json"]


@contextmanager
def _spawn(words: list[str]) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _ready(process: "subprocess.Popen[str]") -> Node:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the node did not get ready; run it by hand to see why"
    threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True).start()
    return Node(process, json.loads(line))
