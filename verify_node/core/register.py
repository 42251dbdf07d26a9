"""A register of the connected peers and their sessions. No I/O, clock or torch.

Peers join with a Hello and leave with a Leave, or when their lease runs out. With keys, each peer belongs to a
key, and is removed with the key. Invalid requests are answered by a `Refusal`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count

from msgspec.structs import replace

from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.paged.pages import PagePool
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Hello, SloTerms, Welcome
from goodspeed.wire.messages import Refusal, UpMessage
from verify_node.clients.client import Client, Peer
from verify_node.core.client_events import ClientEvents
from verify_node.core.refusals import ANOTHERS_PEER, check_hello, check_principal
from verify_node.core.sessions import Sessions
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.allocate import Allocator
from verify_node.session.session import Session
from verify_node.slo.terms import terms_of

MAX_CLIENTS = 4096
"""Client names remembered, because names can be invented freely; beyond that, only present clients are retained."""

MAX_STEM = 56
"""Characters retained of a name that gets a number, so that the numbered name stays valid."""


class Register:
    """Peers by their ids, and the sessions of each."""

    def __init__(
        self,
        settings: CoreSettings,
        welcome: Welcome,
        allocator: Allocator,
        pool: PagePool,
        constraints: Constraints | None,
    ) -> None:
        """welcome: its context is limited to the pool's size here, and it announces whether constraints are served."""
        context_len = min(welcome.context_len, pool.num_pages * pool.page_size)
        # Barrier rounds verify drafts whole, so a client whose first choices are right could fill them with siblings.
        takes_trees = welcome.trees and not settings.is_barrier
        self.welcome = replace(welcome, context_len=context_len, constraints=constraints is not None, trees=takes_trees)
        self.tiers = {tier.tier: tier for tier in settings.tiers}
        self.enrolled: Mapping[str, Enrolled] | None = None  # by key; None: there are no keys
        self.peers: dict[bytes, Peer] = {}
        self.client_events = ClientEvents()
        self.allocator = allocator
        self.pool = pool
        self.sessions = Sessions(
            settings, allocator, pool, constraints, welcome=lambda: self.welcome, slo_terms=self.slo_terms
        )

    def record(self, peer: Peer) -> Enrolled | None:
        """Returns the enrolment of the peer's key; None where there are no keys."""
        return (self.enrolled or {}).get(peer.principal) if peer.principal is not None else None

    def slo_terms(self, peer: Peer) -> SloTerms:
        return terms_of(self.tiers, self.record(peer))

    def enrol(self, enrolled: Mapping[str, Enrolled], now: float) -> list[Peer]:
        """Replaces the enrolment. Ends and returns the peers whose key was removed or changed."""
        before = {peer.peer_id: self.record(peer) for peer in self.peers.values()}
        self.enrolled = enrolled
        ended = [
            one for one in self.peers.values() if self.record(one) is None or self.record(one) != before[one.peer_id]
        ]
        self._lose(ended, now)
        return ended

    def check(self, peer_id: bytes, message: UpMessage, principal: str | None, now: float) -> Refusal | None:
        """Returns the refusal of a message that its sender's key does not permit; None if it is permitted."""
        if self.enrolled is None:
            return None
        peer = self.peers.get(peer_id)
        if principal in self.enrolled and peer is not None and peer.principal != principal:
            self._lose([peer], now)  # its connection ended: no later message for it may use this peer id
            return ANOTHERS_PEER
        return check_principal(principal, self.enrolled, message)

    def name_of(self, principal: str | None) -> str:
        """Returns the name for which a key is enrolled; "" without keys."""
        enrolled = (self.enrolled or {}).get(principal or "")
        return enrolled.name if enrolled is not None else ""

    def hello(self, peer_id: bytes, hello: Hello, now: float, principal: str | None = None) -> Refusal | None:
        if refused := check_hello(hello, self.welcome):
            return refused
        name = self._client_name(peer_id, hello, principal)
        self._make_room(name)
        client = self.allocator.client(name)
        if hello.draft_model and all(peer.client is not client for peer in self.peers.values()):
            self.allocator.set_draft_model(client, hello.draft_fingerprint)
        if principal is not None and self.enrolled is not None:
            client.grant(self.enrolled[principal])
        self._follow(peer_id, hello.boot_id, client, principal)
        old = self.peers.get(peer_id)
        if old is not None and not _is_same_draft_node(old, client, hello):
            self.sessions.drop_all_of([old])  # the new process does not know these sessions
            old = None
        if old is None:
            alike = f", another one named {hello.name}" if name != hello.name else ""
            self.client_events.visit("joined", name, (hello.draft_model or "without a model") + alike, now)
        since = now if old is None else old.since
        self.peers[peer_id] = Peer(peer_id, hello, client, since, now, principal)
        self._know_models([client])
        return None

    def _client_name(self, peer_id: bytes, hello: Hello, principal: str | None) -> str:
        """Returns the name of a Hello's client: its key's name; without keys, a name that no other process here has.

        Without keys, two draft nodes of the same name would share one client's weight and estimates.
        """
        if principal is not None:
            return hello.name
        for peer in self.peers.values():
            if (peer.hello.boot_id, peer.hello.name) == (hello.boot_id, hello.name):
                return peer.client.name  # the same process connects again, or repeats its Hello
        taken = {peer.client.name for peer in self.peers.values() if peer.peer_id != peer_id}
        names = (f"{hello.name[:MAX_STEM]}-{number}" for number in count(2))
        return next(name for name in chain((hello.name,), names) if name not in taken)

    def _make_room(self, name: str) -> None:
        """Forgets absent clients once MAX_CLIENTS names are known; until then, estimates outlive connections."""
        clients = self.allocator.clients
        if name not in clients and len(clients) >= MAX_CLIENTS:
            there = {peer.client.name for peer in self.peers.values()}
            there |= {session.client.name for session in self.sessions.values()}
            for gone in clients.keys() - there:
                del clients[gone]

    def _follow(self, peer_id: bytes, boot_id: bytes, client: Client, principal: str | None) -> None:
        """Moves a process's sessions to its new connection, which has a new peer id.

        Another client with the same boot id, by chance or on purpose, gets none of these sessions. Those of another
        process that had the new peer id end.
        """
        for old in list(self.peers.values()):
            is_same = old.client is client and (old.principal, old.hello.boot_id) == (principal, boot_id)
            if is_same and old.peer_id != peer_id:
                if (replaced := self.peers.get(peer_id)) is not None:
                    self.sessions.drop_all_of([replaced])
                self.peers[peer_id] = self.peers.pop(old.peer_id)
                for session in self.sessions.values():
                    if session.peer_id == old.peer_id:
                        session.move_to(peer_id)

    def expire(self, now: float, round_s: float) -> list[Session]:
        """Drops peers whose lease ran out, and forgotten and stuck sessions; returns the stuck ones.

        round_s: duration of a round.
        """
        self._lose([peer for peer in self.peers.values() if now - peer.last_seen > self.welcome.lease_s], now)
        return self.sessions.expire(now, round_s)

    def put_out(self, sender: bytes) -> list[bytes]:
        """Ends a sender's connections and sessions, with keys all of its key; returns the ended peers' ids."""
        ended = [peer for peer in self.peers.values() if peer.sender == sender]
        self._remove(ended)
        return [peer.peer_id for peer in ended]

    def leave(self, peer: Peer, now: float) -> None:
        """Handles a Leave: removes the peer and drops its sessions at once."""
        self._remove([peer])
        self.client_events.visit("left", peer.client.name, peer.hello.draft_model, now)

    def _lose(self, peers: Sequence[Peer], now: float) -> None:
        self._remove(peers, may_return=True)
        for peer in peers:
            self.client_events.visit("lost", peer.client.name, peer.hello.draft_model, now)

    def _remove(self, peers: Sequence[Peer], *, may_return: bool = False) -> None:
        """Removes all these peers and their sessions in one pass, since thousands may vanish at once."""
        for peer in peers:
            del self.peers[peer.peer_id]
        if peers:
            self._know_models([peer.client for peer in peers])
            self.sessions.drop_all_of(peers, may_return=may_return)

    def _know_models(self, clients: Iterable[Client]) -> None:
        """Updates whether one of each client's connected processes has a draft model."""
        have = {peer.client.name for peer in self.peers.values() if peer.hello.draft_model}
        for client in clients:
            client.know_models(has_model=client.name in have)


def _is_same_draft_node(peer: Peer, client: Client, hello: Hello) -> bool:
    """True if a Hello comes from the peer's own process, with the same client name and draft model."""
    known = (peer.hello.boot_id, peer.hello.draft_fingerprint)
    return peer.client is client and known == (hello.boot_id, hello.draft_fingerprint)
