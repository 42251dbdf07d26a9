"""`goodspeed-verify`: loads the target model, binds the address, and serves until stopped."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from goodspeed.drafting.sources import OWN
from goodspeed.errors import ConfigError
from goodspeed.serving.config import from_namespace
from goodspeed.serving.events import EventLog, Reporter
from goodspeed.serving.measuring import recording
from goodspeed.serving.running import daemon_parser, run, until_signal
from goodspeed.wire import descriptors
from verify_node.config import VerifyConfig
from verify_node.process.preflight import check

if TYPE_CHECKING:  # these import torch and HTTP
    from verify_node.process.daemon import VerifyDaemon

    Loaded: TypeAlias = tuple[VerifyDaemon, Callable[[], Coroutine[None, None, None]]]

PROGRAM = "goodspeed-verify"


def main() -> int:
    return run(PROGRAM, build_parser(), serve, daemon=True)


def build_parser() -> argparse.ArgumentParser:
    return daemon_parser(
        PROGRAM,
        VerifyConfig,
        description="The verify node: checks everybody's drafts with the target model and shares out the budget.",
        example="goodspeed-verify --model tiny-target --http 127.0.0.1:9000",
    )


def serve(namespace: argparse.Namespace) -> int:
    """Serves until a stop signal; draft nodes keep their texts, and return to a restarted verify node."""
    if namespace.record and not namespace.json:
        raise ConfigError("--record adds to the events that --json prints; give both, or neither")
    events = EventLog(enabled=namespace.json)
    daemon, serving = load(namespace, events, Reporter(PROGRAM, quiet=namespace.log_level == "error"))

    asyncio.run(until_signal(serving()))
    told, counts = dict[str, object](), daemon.core.counts
    if (own := daemon.target.draft_model) is not None:
        made = {"drafted": counts.drafted_by[OWN], "accepted": counts.accepted_by[OWN], "failures": own.num_failures}
        told["draft_model"] = made
    events.write(
        "stopped",
        num_rounds=daemon.core.rounds.num_rounds,
        wall_s=asdict(counts.wall),
        uplink_bytes=daemon.messages.uplink_bytes,
        refusals=dict(daemon.core.replies.refusals),
        policy_error=daemon.core.allocator.misfits.told,
        **told,
    )
    return 0


def settings(words: Sequence[str]) -> VerifyConfig:
    """Parses options; raises the named error, or exits, as the command does."""
    return from_namespace(VerifyConfig, build_parser().parse_args(words))


def check_here(config: VerifyConfig, reporter: Reporter) -> None:
    """Checks the files, ports and models of this machine without torch; raises the named error."""
    found = check(config, reporter)
    if found.http is not None:
        found.http.listener.close()


def load(namespace: argparse.Namespace, events: EventLog, reporter: Reporter) -> "Loaded":
    """Loads the model and binds the addresses; returns the node, and a function that serves until cancelled."""
    config = from_namespace(VerifyConfig, namespace)
    descriptors.check_limit()
    found = check(config, reporter)
    with reporter.progress("loading %s", config.model):
        # After all checks: importing torch takes seconds, and loading a model minutes.
        from verify_node.process.assembly import assemble

        daemon = assemble(config, events, found, reporter)
    serving: Callable[[], Coroutine[None, None, None]] = daemon.serve
    url = None
    if found.http is not None:
        from goodspeed.serving.web import address
        from verify_node.watch import app

        address.start_listening(found.http.listener)
        serving = partial(app.serve, config, daemon.core, daemon.channel, found.http, daemon.serve)
        url = address.url(found.http.listener)
    events.write(
        "ready",
        endpoint=daemon.channel.endpoint,
        model=config.model,
        policy=config.policy,
        rounds=config.rounds,
        budget=daemon.core.limits.budget,
        vocab_size=daemon.core.welcome.vocab_size,
        context_len=daemon.core.welcome.context_len,
        num_pages=daemon.core.pool.num_pages,
        url=url,
        **({"versions": recording.versions()} if config.record else {}),
    )
    if config.draft_model is not None:
        reporter.say("drafting here with %s", config.draft_model)
    reporter.say("listening at %s", daemon.channel.endpoint)
    if url is not None:
        reporter.say("the page is at %s", url)
    return daemon, serving
