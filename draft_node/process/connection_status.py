"""Reports a draft node's connection to its verify node to the operator, as lines and as events."""

import asyncio
import time

from draft_node.config import DraftConfig
from draft_node.core.link import VerifyLink
from draft_node.process.daemon import DraftDaemon
from goodspeed.serving.events import EventLog, Reporter, Sentence
from goodspeed.serving.loop import wait_at_most
from goodspeed.untrusted import sanitize

FIRST_S = 5.0
"""Seconds before waiting is first reported: a verify node that was started at the same time answers sooner."""

AGAIN_S = 60.0
"""Seconds between two reports of one wait."""

START = "start goodspeed-verify there (it answers once its model is loaded), or check --verify"
WAIT = "texts wait for it"


class ConnectionStatus:
    """Tracks the latest report, and when to report waiting again."""

    def __init__(self, endpoint: str) -> None:
        """endpoint: all addresses of --verify, for the reports before a connection."""
        self._all = endpoint
        self._endpoint = endpoint  # of the latest connection
        self._target = ("", "")  # latest name and fingerprint
        self._has_connected = self._is_there = False
        self._away_s = 0.0  # at the previous look
        self._why = START  # as it was last reported
        self._next_s = FIRST_S

    def look(self, link: VerifyLink, endpoint: str, now: float, trouble: str | None) -> Sentence | None:
        """Returns the sentence to report now on the home link; None: nothing has changed.

        endpoint: the link's. trouble: as in `Links.trouble`.
        """
        if link.connected and link.welcome is not None:
            return self._arrived((link.welcome.target, link.welcome.target_fingerprint), endpoint)
        away_s = link.away_s(now)
        why = WAIT if self._has_connected and away_s < FIRST_S else START
        if trouble is not None:
            why = f"it refuses this node: {sanitize(trouble)}"  # untrusted words
        return self._missed(away_s, why)

    def _arrived(self, target: tuple[str, str], endpoint: str) -> Sentence | None:
        if self._is_there and endpoint == self._endpoint:
            return None
        back = f" again after {self._away_s:.1f} s" if self._has_connected and not self._is_there else ""
        old, new = sanitize(self._target[0]), sanitize(target[0])
        if self._has_connected and target != self._target:
            same = ", of other weights or precision" if old == new else ""
            back += f"; its target is {new} (it was {old}{same}), so texts of the old one end"
        self._endpoint, self._target, self._has_connected, self._is_there = endpoint, target, True, True
        self._why, self._next_s = START, FIRST_S
        return Sentence("connected to %s%s", (endpoint, back))

    def _missed(self, away_s: float, why: str) -> Sentence | None:
        self._is_there, self._away_s = False, away_s
        if why == self._why and away_s < self._next_s:
            return None
        self._why, self._next_s = why, away_s + AGAIN_S
        where = self._all if why == START else self._endpoint
        return Sentence("waiting for the verify node at %s (since %.0f s); %s", (where, away_s, why))


LOOK_S = 0.1
"""Seconds between looks. Shorter absences go unreported: reconnecting takes about as long."""


async def tell(
    config: DraftConfig, daemon: DraftDaemon, events: EventLog, reporter: Reporter, url: str | None = None
) -> None:
    """Reports until cancelled. url: of the HTTP server, reported as ready once texts can begin; None: no server."""
    status = ConnectionStatus(", ".join(config.verify))
    has_connected = False
    while True:
        trouble = daemon.core.links.trouble
        if (sentence := status.look(daemon.link, daemon.channel.endpoint, time.monotonic(), trouble)) is not None:
            reporter.say(sentence.text, *sentence.values)
        if daemon.connected.is_set() and not has_connected:
            has_connected = True
            events.write("connected", name=config.name, verify=", ".join(config.verify))
            if url is not None:
                reporter.say("ready at %s", url)
        if has_connected:
            await asyncio.sleep(LOOK_S)
        else:  # report the first connection at once: a short text may end before the next look
            await wait_at_most(LOOK_S, daemon.connected)
