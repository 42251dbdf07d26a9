"""Reports a draft node's connection to its verify node to the operator, as lines and as events."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from draft_node.config import DraftConfig
from draft_node.process.daemon import DraftDaemon
from goodspeed.serving.events import EventLog, Reporter, Sentence
from goodspeed.untrusted import sanitize

FIRST_S = 2.0
"""Seconds before waiting is first reported: an available verify node answers sooner."""

MOST_S = 600.0
"""Longest interval between two reports of one wait, in seconds; reports come after 2, 6, 18, ... s of waiting."""


class ConnectionStatus:
    """Tracks the latest report, and when to report waiting again."""

    def __init__(self, endpoint: str) -> None:
        """endpoint: all addresses of --verify, for the reports before a connection."""
        self._endpoint = endpoint
        self._home = endpoint  # of the latest connection
        self._was_connected: bool | None = None  # None: never connected
        self._trouble: str | None = None
        self._target: tuple[str, str] | None = None  # latest name and fingerprint
        self._away_s = 0.0  # at the previous look
        self._was_loading = False  # at the previous look
        self._next_s = FIRST_S

    def look(
        self,
        *,
        connected: bool,
        away_s: float,
        trouble: str | None,
        is_loading: bool = False,
        target: tuple[str, str] = ("", ""),
        endpoint: str | None = None,
    ) -> list[Sentence]:
        """Returns the sentences to report now.

        away_s: seconds that the verify node has been away; trouble: why the verify node refuses this node, None: no
        refusal; is_loading: the verify node says that it loads its model; target: name and fingerprint of the connected
        target; endpoint: of the connected verify node, None: unchanged.
        """
        trouble = None if trouble is None else sanitize(trouble)  # from the verify node, untrusted
        if connected:
            found = self._arrived(target, endpoint or self._home)
        else:
            found = self._missed(away_s, trouble, is_loading)
        self._was_loading = is_loading
        self._away_s = away_s
        return found

    def _arrived(self, target: tuple[str, str], endpoint: str) -> list[Sentence]:
        before, self._was_connected = self._was_connected, True
        known, self._target = self._target, target
        home, self._home = self._home, endpoint
        self._next_s, self._trouble = FIRST_S, None
        if before is None:
            return [Sentence("connected to %s", (endpoint,))]
        if before:
            return [] if home == endpoint else [Sentence("new texts go to the verify node at %s", (endpoint,))]
        if known is not None and known != target:
            what = "the verify node is back after %.1f s with another target: %s (it was %s); texts of the old one end"
            names = [sanitize(name) for name, _ in (target, known)]
            same = ", of other weights or precision" if names[0] == names[1] else ""
            return [Sentence(what, (self._away_s, names[0], names[1] + same))]
        if home != endpoint:
            return [Sentence("texts go on at another verify node, %s, after %.1f s", (endpoint, self._away_s))]
        return [Sentence("the verify node is back after %.1f s", (self._away_s,))]

    def _missed(self, away_s: float, trouble: str | None, is_loading: bool) -> list[Sentence]:
        found = []
        if self._was_connected:
            self._was_connected = False
            found.append(Sentence("the verify node at %s is away; texts wait for it", (self._home,)))
        if trouble is not None and trouble != self._trouble:
            self._trouble = trouble
            found.append(Sentence("the verify node at %s refuses this node: %s", (self._endpoint, trouble)))
        if away_s >= self._next_s or (is_loading and not self._was_loading):
            found.append(self._waiting(away_s, is_loading))
            told_s = max(self._next_s, away_s)
            while self._next_s <= told_s:
                self._next_s = min(3 * self._next_s, self._next_s + MOST_S)
        return found

    def _waiting(self, away_s: float, is_loading: bool) -> Sentence:
        what_to_do = "; start goodspeed-verify there, or check --verify"
        if is_loading or self._trouble:
            what_to_do = "; it is loading its model" if is_loading else ""
        return Sentence("waiting for the verify node at %s (since %.0f s)" + what_to_do, (self._endpoint, away_s))


async def first_end(*tasks: "asyncio.Task[Any]") -> None:
    """Waits until one of the tasks ends; raises its error."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()


async def stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


LOOK_S = 0.1
"""Seconds between looks. Shorter absences go unreported: reconnecting takes about as long."""


async def tell(
    config: DraftConfig, daemon: DraftDaemon, events: EventLog, reporter: Reporter, url: str | None = None
) -> None:
    """Reports until cancelled. url: of the HTTP server, reported as ready once texts can begin; None: no server."""
    status_lines = ConnectionStatus(", ".join(config.verify))
    has_connected = is_ready = False
    while True:
        connected = daemon.connected.is_set()
        now = time.monotonic()
        away_s, trouble = daemon.core.away_s(now), daemon.link.trouble
        welcome = daemon.link.welcome
        target = (welcome.target, welcome.target_fingerprint) if welcome is not None else ("", "")
        said = status_lines.look(
            connected=connected,
            away_s=away_s,
            trouble=trouble,
            is_loading=daemon.link.is_loading(now),
            target=target,
            endpoint=daemon.channel.endpoint,
        )
        reporter.say_all(said)
        if connected and not has_connected:
            has_connected = True
            events.write("connected", name=config.name, verify=", ".join(config.verify))
        if url is not None and connected and not is_ready:
            is_ready = True
            reporter.say("ready at %s", url)
        if has_connected:
            await asyncio.sleep(LOOK_S)
            continue
        with suppress(TimeoutError):  # report a connection at once: a short text may end before the next look
            async with asyncio.timeout(LOOK_S):
                await daemon.connected.wait()
