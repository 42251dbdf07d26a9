"""Tells those who started a draft node how it stands with its verify node, as lines and as events, while it serves."""

import asyncio
import time
from contextlib import suppress

from draft_node.config import DraftConfig
from draft_node.daemon import DraftDaemon
from draft_node.serve.connection_status import ConnectionStatus
from goodspeed.command.events import EventLog
from goodspeed.command.reporter import Reporter

LOOK_S = 0.1
"""Seconds between looks. Absences shorter than this are not reported: reconnecting takes about as long."""


async def tell(
    config: DraftConfig, daemon: DraftDaemon, events: EventLog, reporter: Reporter, url: str | None = None
) -> None:
    """Tells until cancelled. `url` is that of the HTTP face, which is ready as soon as texts can be begun."""
    if config.fallback == "local":
        what = "the draft model writes on alone, which is another distribution"
        reporter.say(f"--fallback local: while the verify node is away, {what}")
    status_lines = ConnectionStatus(", ".join(config.verify))
    has_connected = is_ready = False
    while True:
        connected = daemon.connected.is_set()
        away_s, trouble = daemon.away_s(time.monotonic()), daemon.link.trouble
        welcome = daemon.link.welcome
        target = (welcome.target, welcome.target_fingerprint) if welcome is not None else ("", "")
        said = status_lines.look(
            connected=connected, away_s=away_s, trouble=trouble, local=daemon.is_local, target=target
        )
        reporter.say_all(said)
        if connected and not has_connected:
            has_connected = True
            events.write("connected", name=config.name, verify=", ".join(config.verify))
        if url is not None and daemon.ready.is_set() and not is_ready:
            is_ready = True
            reporter.say("ready at %s", url)
        if has_connected:
            await asyncio.sleep(LOOK_S)
            continue
        with suppress(TimeoutError):  # at once when it is there: a short text may end before the next look
            async with asyncio.timeout(LOOK_S):
                await daemon.connected.wait()
