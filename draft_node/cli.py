"""`goodspeed-draft`: loads the draft model, connects to the verify node, and serves prompts."""

import argparse
import asyncio
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from draft_node import standard_input
from draft_node.config import NAME, DraftConfig, default_name
from goodspeed import descriptors
from goodspeed.command import add_daemon_options, run, until_signal
from goodspeed.command_line import CommandLine
from goodspeed.config import add_options, from_namespace
from goodspeed.endpoints import parse_endpoint
from goodspeed.errors import ConfigError
from goodspeed.events import EventLog, print_json
from goodspeed.keys import read_draft_pair
from goodspeed.prompts import read_file

if TYPE_CHECKING:  # they import torch
    from draft_node.console import Console
    from draft_node.daemon import DraftDaemon


def main() -> int:
    return run("goodspeed-draft", build_parser(), serve)


def build_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="goodspeed-draft",
        description="A draft node: proposes tokens with a small model and streams what the verify node confirms.",
        example="goodspeed-draft --model tiny-draft-s --name ana --http 127.0.0.1:8000",
        version=True,
    )
    add_options(parser, DraftConfig)
    add_daemon_options(parser)
    return parser


def serve(namespace: argparse.Namespace) -> int:
    """Serves HTTP until told to stop, or the prompts of the file, or of standard input until it ends.

    Exit status 1 when a prompt failed, 130 when a signal left a text unfinished.
    """
    config = _named_by_key(from_namespace(DraftConfig, namespace))
    if not re.fullmatch(NAME, config.name):
        raise ConfigError(f"--name {config.name!r} must be 1 to 64 letters, digits, dots, dashes or underscores")
    parse_endpoint(config.verify, config.trusted_network or config.key is not None, "connecting")
    descriptors.check_limit()
    events = EventLog(enabled=namespace.json)
    return _serve_http(config, events) if config.http is not None else _serve_prompts(config, events)


def _named_by_key(config: DraftConfig) -> DraftConfig:
    """A key has a name, and --name may only repeat it."""
    if config.key is None:
        return config
    name = read_draft_pair(config.key).name or ""
    if config.name not in (name, default_name()):
        raise ConfigError(f"--name {config.name!r} is not what --key {config.key} is made for, {name!r}; leave it out")
    return replace(config, name=name)


def _serve_http(config: DraftConfig, events: EventLog) -> int:
    """Finishes running texts when told to stop; the last event says whether all were."""
    from goodspeed import web  # here: HTTP libraries are for those who serve it

    keys = web.read_keys(config.api_key) if config.api_key is not None else None
    web.check_reach(web.parse_address(config.http or ""), keys)
    # After the options are checked: importing torch takes seconds that a wrong option should not cost.
    from draft_node.assembly import assemble
    from draft_node.face import Face

    daemon, checkpoint = assemble(config)
    face = Face(config, checkpoint, daemon, events, keys)
    try:
        asyncio.run(until_signal(face.run()))
    finally:
        events.write("stopped", **face.summary())
    if not face.all_finished:
        print(f"interrupted; texts were unfinished after {config.drain_timeout_s:g} s", file=sys.stderr)
    return 0 if face.all_finished else 130


def _serve_prompts(config: DraftConfig, events: EventLog) -> int:
    prompts = read_file(config.prompts) if config.prompts not in (None, standard_input.NAME) else None
    from draft_node.assembly import assemble
    from draft_node.console import Console

    daemon, checkpoint = assemble(config)
    console = Console(config, checkpoint, daemon, events, prompts)

    try:
        if asyncio.run(until_signal(_work(config, daemon, console, events))) and console.unfinished:
            print(f"interrupted; unfinished prompts: {len(console.unfinished)}", file=sys.stderr)
            console.give_up("interrupted", "this draft node was told to stop")
            return 130
    finally:
        console.give_up("closed", "this draft node could not go on")
        if events.enabled:
            print_json({"name": config.name, "model": config.model, "prompts": console.results})
    return 1 if console.num_failed else 0


async def _work(config: DraftConfig, daemon: "DraftDaemon", console: "Console", events: EventLog) -> None:
    """Serves until the prompts are done, or the daemon gives up."""
    serving = asyncio.create_task(daemon.serve())
    asking = asyncio.create_task(console.run())
    telling = asyncio.create_task(_tell_when_connected(config, daemon, events))
    events.write("ready", name=config.name, model=config.model)
    try:
        await asyncio.wait([serving, asking], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        asking.result()
    finally:
        for tasks in ((asking, telling), (serving,)):  # while it still serves, sessions can be closed
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _tell_when_connected(config: DraftConfig, daemon: "DraftDaemon", events: EventLog) -> None:
    await daemon.connected.wait()
    events.write("connected", name=config.name, verify=config.verify)
