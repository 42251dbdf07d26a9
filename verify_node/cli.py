"""`goodspeed-verify`: loads the target model, binds the address, and serves until it is told to stop."""

import argparse
import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from goodspeed import descriptors
from goodspeed.command import add_daemon_options, run, until_signal
from goodspeed.command_line import CommandLine
from goodspeed.config import add_options, from_namespace
from goodspeed.endpoints import parse_endpoint
from goodspeed.errors import ConfigError
from goodspeed.events import EventLog
from verify_node.config import VerifyConfig

if TYPE_CHECKING:  # they import torch, and HTTP
    from goodspeed.web import Keys
    from verify_node.daemon import VerifyDaemon
    from verify_node.window.window import Window


def main() -> int:
    return run("goodspeed-verify", build_parser(), serve)


def build_parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="goodspeed-verify",
        description="The verify node: checks everybody's drafts with the target model and shares out the budget.",
        example="goodspeed-verify --model tiny-target --http 127.0.0.1:9000",
        version=True,
    )
    add_options(parser, VerifyConfig)
    add_daemon_options(parser)
    return parser


def serve(namespace: argparse.Namespace) -> int:
    """Until SIGINT or SIGTERM; draft nodes keep their committed tokens and come back to a restarted verify node."""
    config = from_namespace(VerifyConfig, namespace)
    if config.record and not namespace.json:
        raise ConfigError("--record adds to the events that --json prints; give both, or neither")
    parse_endpoint(config.bind, config.trusted_network or config.key is not None, "binding")
    descriptors.check_limit()
    keys = http_keys(config)
    # After the options are checked: importing torch takes seconds that a wrong option should not cost.
    from verify_node.assembly import assemble

    events = EventLog(enabled=namespace.json)
    daemon = assemble(config, events)
    window = open_window(config, daemon, keys)
    welcome = daemon.core.welcome
    events.write(
        "ready",
        endpoint=daemon.channel.endpoint,
        model=config.model,
        policy=config.policy,
        rounds=config.rounds,
        budget=daemon.core.limits.budget,
        vocab_size=welcome.vocab_size,
        context_len=daemon.core.context_len,
        num_pages=daemon.core.pool.num_pages,
        url=window.url if window is not None else None,
    )
    asyncio.run(until_signal(daemon.serve() if window is None else window.serve()))
    events.write(
        "stopped",
        num_rounds=daemon.core.num_rounds,
        wall_s=asdict(daemon.wall),
        uplink_bytes=daemon.uplink_bytes,
        refusals=dict(daemon.core.refusals),
    )
    return 0


def http_keys(config: VerifyConfig) -> "Keys | None":
    """Those of --api-key, once it is sure that --http may be served with them; HTTP is imported only where it is."""
    if config.http is None:
        return None
    from goodspeed import web

    keys = web.read_keys(config.api_key) if config.api_key is not None else None
    web.check_reach(web.parse_address(config.http), keys)
    return keys


def open_window(config: VerifyConfig, daemon: "VerifyDaemon", keys: "Keys | None") -> "Window | None":
    """What --http asks for."""
    if config.http is None:
        return None
    from verify_node.window.window import Window

    return Window(config, daemon, keys)
