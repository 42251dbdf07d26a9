"""A small real run to look at: one verify node with its window, and draft nodes that have texts to write for long."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from goodspeed.embedded import prompts
from tests.nodes import Process, VerifyNode

MODELS = ("tiny-draft-s", "tiny-draft-m")
MAX_TOKENS = 400


@dataclass
class Run:
    """The nodes that take part."""

    verify: VerifyNode
    drafts: dict[str, Process]

    @property
    def url(self) -> str:
        return self.verify.url


@contextmanager
def running(num_clients: int, folder: Path, **settings: float) -> Iterator[Run]:
    """All nodes are there; draft nodes may still be about to connect. settings: of the verify node."""
    with ExitStack() as stack:
        verify = stack.enter_context(VerifyNode(measures=False, **settings))
        drafts = {}
        for index in range(num_clients):
            name = f"client-{index + 1}"
            drafts[name] = stack.enter_context(_draft(index, name, verify.endpoint, folder))
            stack.callback(drafts[name].kill)  # in the middle of a text
        for node in drafts.values():
            node.wait_for("ready")
        yield Run(verify, drafts)


def _draft(index: int, name: str, endpoint: str, folder: Path) -> Process:
    """Each has its own kind of text; enough of them that it never runs out."""
    all_prompts = prompts.demo()
    file = folder / f"prompts-{index}.jsonl"
    line = json.dumps({"prompt": all_prompts[index % len(all_prompts)].prompt, "seed": 7})
    file.write_text(f"{line}\n" * 1000, "utf-8")
    who = ("--model", MODELS[index % len(MODELS)], "--verify", endpoint, "--name", name)
    texts = ("--prompts", str(file), *f"--max-tokens {MAX_TOKENS} --max-sessions {1 + index % 2}".split())
    return Process("draft_node", *who, *texts, ports={})
