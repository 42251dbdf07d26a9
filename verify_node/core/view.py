"""Read access to a verify core for the metrics, the window and the daemon's log. Changes nothing."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from goodspeed.engine.paged.pages import PagePool
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.handshake import Welcome
from verify_node.core.counts import Counts
from verify_node.core.diary import Diary
from verify_node.scheduler.round import RoundLimits
from verify_node.session.client import Client, Peer
from verify_node.session.session import Session

if TYPE_CHECKING:
    from verify_node.core.core import VerifyCore


class View:
    """A verify core's state, as it is at the time of reading."""

    def __init__(self, core: "VerifyCore") -> None:
        self._core = core
        self.limits: RoundLimits = core.limits
        self.pool: PagePool = core.pool
        self.counts: Counts = core.counts
        self.diary: Diary = core.register.diary
        self.peers: Mapping[bytes, Peer] = MappingProxyType(core.register.peers)
        self.sessions: Mapping[bytes, Session] = MappingProxyType(core.register.sessions)
        self.clients: Mapping[str, Client] = MappingProxyType(core.allocator.clients)
        self.refusals: Mapping[str, int] = MappingProxyType(core.replies.refusals)

    @property
    def welcome(self) -> Welcome:
        """What every draft node is told."""
        return self._core.welcome

    @property
    def tiers(self) -> Sequence[str]:
        """Names of the tiers, and `other` for objectives of no tier."""
        return [*self._core.register.tiers.by_name, OTHER]

    @property
    def num_promised(self) -> int:
        """Open sessions whose service level is promised."""
        return len(self._core.promises.promised)

    @property
    def num_promised_pages(self) -> int:
        """Pages that are reserved for them, in the worst case."""
        return self._core.promises.num_pages

    @property
    def num_rounds(self) -> int:
        """Rounds begun."""
        return self._core.num_rounds

    @property
    def num_running(self) -> int:
        """Open, unfinished sessions that take part in the newest round; the other unfinished ones wait."""
        return sum(not session.finished and self._core.register.has(session) for session in self._core.newest)

    @property
    def permits_models(self) -> bool:
        """Whether draft models may draft until the next round."""
        return self._core.model_drafts.permits

    @property
    def num_unanswered(self) -> int:
        """Refusals that were counted and not sent."""
        return self._core.replies.num_unanswered

    @property
    def num_ignored(self) -> int:
        """Messages of barred senders, which are dropped unread."""
        return self._core.replies.num_ignored

    @property
    def num_unheeded(self) -> int:
        """Increases with every message that is refused or dropped unread, and with no other."""
        return self._core.replies.num_unheeded

    @property
    def num_barred(self) -> int:
        """Senders whose messages are dropped unread now."""
        return len(self._core.rate_limiter.barred)
