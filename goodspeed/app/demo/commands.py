"""The command lines of the two nodes. Knows nothing about running them."""

import os
import sys
from pathlib import Path

import goodspeed
from goodspeed.app.demo.options import Client, DemoConfig

ROOT = Path(goodspeed.__file__).parents[1]
"""Where our packages are; the nodes' are beside them."""

FREE_PORT = "127.0.0.1:0"
"""The node tells which one it is when it is ready."""


def verify_command(config: DemoConfig, log_level: str) -> list[str]:
    """A port that is free is chosen by the node itself: it tells it when it is ready."""
    options = {
        "--model": config.model,
        "--bind": "tcp://127.0.0.1:0",
        "--policy": config.policy,
        "--cost": config.cost,
        "--rounds": config.rounds,
        "--budget": config.budget,
        "--linger-ms": config.linger_ms,
        "--seed": config.seed,
        "--max-sessions": max(1024, config.clients),
    }
    if config.http:
        options["--http"] = FREE_PORT
    return [*_command("verify_node", options, log_level), *(["--record"] if config.record else [])]


def draft_command(config: DemoConfig, client: Client, endpoint: str, log_level: str) -> list[str]:
    """The prompt is not on the command line: it is given when everybody is ready, or sent over HTTP."""
    options = {
        "--model": client.draft_model,
        "--verify": endpoint,
        "--name": client.name,
        "--verification": config.verification,
        "--proposal": config.proposal,
        "--min-odds": config.min_odds,
        **({"--http": FREE_PORT} if config.http else _of_prompts(config)),
    }
    ahead = "--draft-ahead" if config.draft_ahead else "--no-draft-ahead"
    return [*_command("draft_node", options, log_level), ahead]


def _of_prompts(config: DemoConfig) -> dict[str, object]:
    """What requests over HTTP say themselves."""
    return {
        "--prompts": "-",
        "--max-tokens": config.max_tokens,
        "--temperature": config.temperature,
        "--top-k": config.top_k,
        "--top-p": config.top_p,
    }


def environment() -> dict[str, str]:
    """Ours, with one thread for each process, UTF-8 in their pipes, and our packages where they find them."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONPATH": path}


def _command(module: str, options: dict[str, object], log_level: str) -> list[str]:
    words = [f"{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", module, *words, "--json", "--quiet", f"--log-level={log_level}"]
