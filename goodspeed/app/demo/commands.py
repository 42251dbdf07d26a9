"""The command lines of the two nodes."""

import os
import sys
from pathlib import Path

import goodspeed
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.serving.options import NO_MODEL

ROOT = Path(goodspeed.__file__).parents[1]
"""Folder of the packages `goodspeed`, `draft_node` and `verify_node`."""

FREE_PORT = "127.0.0.1:0"
"""Port 0: the system chooses a port, which the node's `ready` event tells."""


def verify_command(config: DemoConfig, log_level: str) -> list[str]:
    """Returns the verify node's command line; the node chooses a free port, and its `ready` event tells it."""
    options = {
        "--model": config.model,
        "--bind": "tcp://127.0.0.1:0",
        "--policy": config.policy,
        "--budget": config.budget,
        "--max-sessions": max(1024, config.clients),
    }
    if config.http:
        options["--http"] = FREE_PORT
    tiers = [f"--slo-tier={tier}" for tier in config.slo_tier]
    record = ["--record"] if config.record else []
    return [*_command("verify_node", options, log_level), *_preset(config), *tiers, *record]


def draft_command(config: DemoConfig, client: Client, endpoint: str, log_level: str) -> list[str]:
    """Returns a draft node's command line without its prompt, which comes on standard input or over HTTP."""
    options = {
        "--model": client.draft_model,
        **_of_drafter(config, client),
        "--verify": endpoint,
        "--name": client.name,
        "--verification": config.verification,
        **({"--http": FREE_PORT} if config.http else _of_prompts(config, client)),
    }
    return [*_command("draft_node", options, log_level), *_preset(config)]


def _preset(config: DemoConfig) -> list[str]:
    return [f"--preset={config.preset}"] if config.preset is not None else []


def _of_drafter(config: DemoConfig, client: Client) -> dict[str, object]:
    """Returns the options of a draft model, or of a draft node without one, which needs the target's tokenizer."""
    if client.draft_model == NO_MODEL:
        return {"--tokenizer": config.model}
    return {"--proposal": config.proposal, **({"--drafter": "model"} if config.drafters == "model" else {})}


def _of_prompts(config: DemoConfig, client: Client) -> dict[str, object]:
    """Returns the options that requests over HTTP carry themselves."""
    tier = {"--tier": client.tier} if client.tier is not None else {}
    return tier | {
        "--prompts": "-",
        "--max-tokens": config.max_tokens,
        "--temperature": config.temperature,
    }


def environment() -> dict[str, str]:
    """Returns the nodes' environment: ours with one thread per process, UTF-8 pipes, and ROOT on the import path."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1", "PYTHONPATH": path}


def _command(module: str, options: dict[str, object], log_level: str) -> list[str]:
    words = [f"{name}={value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", module, *words, "--json", "--quiet", f"--log-level={log_level}"]
