"""`goodspeed-draft`: loads the draft model, connects to the verify node, and serves users or runs prompts."""

import argparse
import asyncio
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from draft_node.config import DraftConfig
from draft_node.process.preflight import Found, check
from goodspeed.errors import ConfigError, TransportError
from goodspeed.serving import output
from goodspeed.serving.config import from_namespace
from goodspeed.serving.events import EventLog, Reporter, print_json
from goodspeed.serving.running import daemon_parser, run, until_signal
from goodspeed.serving.starting import INTERRUPTED
from goodspeed.wire import descriptors

if TYPE_CHECKING:  # these modules import HTTP
    from draft_node.process.daemon import DraftDaemon
    from draft_node.service.prompt_batch import PromptBatch
    from goodspeed.serving.web.address import BoundAddress

PROGRAM = "goodspeed-draft"


def main() -> int:
    return run(PROGRAM, build_parser(), serve, daemon=True)


def build_parser() -> argparse.ArgumentParser:
    return daemon_parser(
        PROGRAM,
        DraftConfig,
        description="A draft node: proposes tokens, with a small model or without, and streams what is confirmed.",
        example="goodspeed-draft --model tiny-draft-s --name ana --http 127.0.0.1:8000",
    )


def serve(namespace: argparse.Namespace) -> int:
    """Serves HTTP until a stop signal, or runs the prompts in a file.

    Exit status: 1 if a prompt failed, 130 if a signal left a text unfinished.
    """
    reporter = Reporter(PROGRAM, quiet=namespace.log_level == "error")
    descriptors.check_limit()
    config = from_namespace(DraftConfig, namespace)
    if config.prompts is not None and not namespace.json:
        raise ConfigError("--prompts writes JSON events; give --json, too")
    found = check(config, reporter)
    events = EventLog(enabled=namespace.json)
    if found.http is not None:
        return _serve_http(found, found.http, events, reporter)
    return _serve_prompts(found, events, reporter)


def _loading(config: DraftConfig, reporter: Reporter) -> AbstractContextManager[None]:
    """Reports the block's imports and its loading.

    Importing HTTP and (with a model) torch takes seconds. The imports come after the checks, so that those fail soon,
    and before the node is built, because building starts the --connect-timeout-s timer.
    """
    return reporter.progress("loading %s", config.model if config.has_weights else "the tokenizer")


def _serve_http(found: Found, bound: "BoundAddress", events: EventLog, reporter: Reporter) -> int:
    """Serves HTTP. At a stop signal finishes the running texts; the final event reports whether all were finished."""
    config = found.config
    with _loading(config, reporter):
        from draft_node.http.server import DRAIN_S, HttpServer
        from draft_node.process.assembly import assemble

        daemon, vocabulary = assemble(config, found.keys)
    server = HttpServer(config, vocabulary, daemon, events, bound, reporter)
    try:
        asyncio.run(until_signal(server.run()))
    finally:
        events.write("stopped", **server.summary())
    if not server.all_finished:
        print(f"{PROGRAM}: interrupted; texts were unfinished after {DRAIN_S:g} s", file=sys.stderr)
    return 0 if server.all_finished else INTERRUPTED


def _serve_prompts(found: Found, events: EventLog, reporter: Reporter) -> int:
    config = found.config
    with _loading(config, reporter):
        from draft_node.process.assembly import assemble
        from draft_node.service.prompt_batch import PromptBatch

        daemon, vocabulary = assemble(config, found.keys)
    batch = PromptBatch(config, vocabulary, daemon, events, found.prompts)
    interrupted = False
    try:
        interrupted = asyncio.run(until_signal(_work(config, daemon, batch, events, reporter)))
        if interrupted and batch.unfinished:
            print(f"{PROGRAM}: interrupted; unfinished prompts: {len(batch.unfinished)}", file=sys.stderr)
            batch.give_up("interrupted", "this draft node was told to stop")
            return INTERRUPTED
    except TransportError as error:
        batch.give_up("verify_away", str(error))
        raise
    finally:
        batch.give_up("closed", "this draft node stopped after an error; see its log")
        print_json({"name": config.name, "model": config.model, "prompts": batch.results})
    if not interrupted:
        output.check(timeout_s=None)  # all of the user's results; after an error `run` waits a limited time
    return 1 if batch.num_failed else 0


async def _work(
    config: DraftConfig, daemon: "DraftDaemon", batch: "PromptBatch", events: EventLog, reporter: Reporter
) -> None:
    """Runs daemon and batch until the prompts are done or the daemon gives up."""
    from draft_node.process.connection_status import tell
    from goodspeed.serving.loop import first_end, stop

    serving = asyncio.create_task(daemon.serve())
    asking = asyncio.create_task(batch.run())
    events.write("ready", name=config.name, model=config.model)
    telling = asyncio.create_task(tell(config, daemon, events, reporter))
    try:
        await first_end(serving, telling, asking)
    finally:
        await stop(asking, telling)  # the daemon still runs, to close sessions
        await stop(serving)
