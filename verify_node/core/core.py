"""The verify node's rules as a state machine: events in, messages out. No I/O, no clock of its own, no torch.

Events: `receive` (a peer's message), `reject` (a peer's unacceptable bytes), `compiled` (a session's constraint),
`enrol` (the keys that may take part), `fleet.know` (the other replicas), `tick` (time passes), `admit` (decides on
requested promises), `plan` (may a round start?), `rounds.finish` (a round is done), `rounds.abort`,
`admission.withdraw` and `fail` (a round, a decision or a message raised an exception) and `drain` (the node stops).
Each event takes the time; most return the messages to send. The daemon feeds it from sockets and the real clock, a
simulation from a virtual clock.

`register.py` holds the connected peers and open sessions; `rounds.py` and `verify_node/scheduler` run the rounds;
`replies.py` makes the refusals and applies the limits on senders.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ProtocolError
from goodspeed.fair import policies
from goodspeed.fair.policies import Policy
from goodspeed.fair.refined import Refined
from goodspeed.fleet.replicas import Load
from goodspeed.wire.codec import refusal_for
from goodspeed.wire.enrolled import Enrolled
from goodspeed.wire.handshake import Heartbeat, Hello, Leave, Welcome
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal, UpMessage
from verify_node.clients.client import Peer, sender_of
from verify_node.core.admission import Admission
from verify_node.core.counts import Counts
from verify_node.core.fleet import Fleet, load_of
from verify_node.core.rate_limit import RateLimiter
from verify_node.core.refusals import (
    HELLO_FIRST,
    NOT_ACKNOWLEDGED,
    STOPPING,
    check_base,
    check_draft,
    check_proposal,
    message_failed,
)
from verify_node.core.register import Register
from verify_node.core.replies import Replies, Send
from verify_node.core.rounds import Rounds
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.allocate import Allocator
from verify_node.scheduler.choose import Choice
from verify_node.scheduler.prompt_lookup import PromptLookup
from verify_node.scheduler.round import Round
from verify_node.session.draft_tokens import first_choices
from verify_node.session.session import Session
from verify_node.slo.promises import Promises


class VerifyCore:
    """The verify node without I/O, clock and model."""

    def __init__(
        self,
        settings: CoreSettings,
        welcome: Welcome,
        pool: PagePool,
        *,
        policy: Policy | None = None,
        cost: Refined | None = None,
        prompt_lookup: PromptLookup | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        """Builds a verify node without sessions.

        welcome: of `CoreSettings.welcome`. policy: replaces the policy named in the settings. cost: round time model,
        which finished rounds refine; None: starts untrained. prompt_lookup: drafts from sessions' own texts, if enabled
        in the settings. constraints: of the target's tokenizer; None: constraints are not served.
        """
        cost = cost if cost is not None else Refined()
        self.limits, self.pool = settings.limits, pool
        self.allocator = allocator = Allocator(
            policy if policy is not None else policies.create(settings.policy),
            settings.budget,
            eta=settings.eta,
            beta=settings.beta,
            is_barrier=settings.is_barrier,
            weigh_evidence=settings.weigh_evidence,
        )
        self.register = register = Register(settings, welcome, allocator, pool, constraints)
        self.welcome = register.welcome  # for draft nodes, without any peer's SLO terms
        self.sessions, self.peers, self.client_events = register.sessions, register.peers, register.client_events
        self.counts, self.rate_limiter = Counts(), RateLimiter(settings.max_client_sessions)
        self.replies = Replies(register, self.rate_limiter, self.counts)
        promises = Promises(settings.admits, cost, settings.max_round_tokens, pool)
        self.fleet = Fleet(register, promises, self.counts, self.load)
        self.admission = Admission(promises, register, self.replies, self.counts, self.fleet)
        own = (prompt_lookup or PromptLookup()) if settings.self_draft else None
        self.rounds = Rounds(
            settings,
            register=register,
            choice=Choice(cost, settings.limits, allocator.worth_of, own, is_barrier=settings.is_barrier),
            cost=cost,
            admission=self.admission,
            replies=self.replies,
            counts=self.counts,
        )
        self.wake_at = 0.0  # time of the next attempt to plan, unless an event comes before
        self.draining = False  # the node is stopping
        self._heartbeat_at = 0.0

    @property
    def promises(self) -> Promises:
        return self.admission.promises

    # -- peers -----------------------------------------------------------------------------------------------------

    def enrol(self, enrolled: Mapping[str, Enrolled], now: float) -> list[Send]:
        """Replaces the enrolment. Ends the sessions of removed or changed keys at once."""
        for key in enrolled.keys() - (self.register.enrolled or {}).keys():
            self.rate_limiter.forgive(sender_of(b"", key))
        return self.replies.revoke(self.register.enrol(enrolled, now), now)

    def load(self, now: float) -> Load:
        parts = self.register, self.promises, self.rounds.cost, self.limits
        return load_of(*parts, round_s=self.rounds.round_s, now=now, is_draining=self.draining)

    def receive(self, peer_id: bytes, message: UpMessage, now: float, principal: str | None = None) -> list[Send]:
        """Handles a peer's message. A peer must send Hello first.

        principal: the key that the sender proved to have; None: there are no keys. peer_id names only the connection.
        """
        opening = message if isinstance(message, OpenSession) else None
        num_tokens = len(opening.prompt) + len(opening.committed) if opening else 0
        if (instead := self.replies.listen(peer_id, now, principal, num_tokens)) is not None:
            return instead
        if refused := self.register.check(peer_id, message, principal, now):
            name = message.name if isinstance(message, Hello) else ""
            return self.replies.refuse(peer_id, refused, now, principal=principal, client=name)
        if isinstance(message, Hello):
            return self._greet(peer_id, message, now, principal)
        peer = self.peers.get(peer_id)
        if opening and peer and (sent_on := self.fleet.open_elsewhere(peer, opening, now, draining=self.draining)):
            return sent_on
        if opening and self.draining:
            return self.replies.refuse(peer_id, STOPPING, now, principal=principal, about=opening)
        if peer is None:
            name = self.register.name_of(principal)
            return self.replies.refuse(peer_id, HELLO_FIRST, now, principal=principal, client=name)
        peer.heard(now)
        return self._heard(peer, message, now)

    def _greet(self, peer_id: bytes, hello: Hello, now: float, principal: str | None) -> list[Send]:
        if self.draining:
            return self.replies.refuse(peer_id, STOPPING, now, principal=principal)
        if refused := self.register.hello(peer_id, hello, now, principal):
            return self.replies.refuse(peer_id, refused, now, principal=principal, client=hello.name)
        welcome = replace(self.register.welcome, slo=self.register.slo_terms(self.peers[peer_id]))
        return [Send(peer_id, welcome), *self.fleet.tell(peer_id)]

    def _heard(self, peer: Peer, message: UpMessage, now: float) -> list[Send]:
        match message:
            case OpenSession():
                return self._open(peer, message, now)
            case Draft() | Ack():
                return self._move(peer, message, now)
            case Close():
                refused = self.sessions.close(peer, message)
                return self.replies.refuse(peer.peer_id, refused, now, about=message) if refused else []
            case Leave():
                self.register.leave(peer, now)
                return []
            case Hello() | Heartbeat():  # `receive` has greeted, or noted that the peer was heard
                return []

    def _open(self, peer: Peer, message: OpenSession, now: float) -> list[Send]:
        in_flight = self.rounds.in_flight is not None
        was_idle = not any(one.is_active for one in self.sessions.values())
        before = self.sessions.get(message.session_id)
        opened = self.sessions.open(peer, message, now, num_rounds=self.rounds.num_rounds, in_flight=in_flight)
        if isinstance(opened, Refusal):
            return self.replies.refuse(peer.peer_id, opened, now, about=message)
        is_kept = opened.session_id not in self.sessions.released
        self.rounds.preemption.opened(opened, before, now, kept=is_kept)
        if opened.is_compiling:
            self.promises.forget(opened)
        else:
            self._begin(opened, before, now, was_idle=was_idle)
        return self.replies.repeat(opened, opened.num_given, now)

    def _begin(self, session: Session, before: Session | None, now: float, *, was_idle: bool) -> None:
        if was_idle:
            self.rounds.model_switch.begin(now)
        self.promises.opened(session, before)

    def compiled(self, asked: Session, result: Compiled, now: float) -> list[Send]:
        """Lets a session of `Sessions.next_to_compile` begin, or refuses it if its constraint does not compile."""
        was_idle = not any(one.is_active for one in self.sessions.values())
        begun = self.sessions.compiled(asked, result, now, num_rounds=self.rounds.num_rounds)
        if isinstance(begun, Refusal):
            return self.replies.give_up(self.sessions[asked.session_id], begun, now)
        if begun is not None:
            self._begin(begun, None, now, was_idle=was_idle)
        return []

    def _move(self, peer: Peer, message: Draft | Ack, now: float) -> list[Send]:
        """Applies the acknowledged position and the draft of a message; a repeated Ack gets the lost verdict again.

        A draft with an invalid proposal counts as empty, so that its session goes on.
        """
        found = self.sessions.find(peer, message, now)
        if isinstance(found, Refusal):
            return self.replies.refuse(peer.peer_id, found, now, about=message)
        draft = message if isinstance(message, Draft) else None
        refused = check_draft(draft, found, self.welcome.vocab_size) if draft else check_base(message, found)
        if refused:
            return self.replies.refuse(peer.peer_id, refused, now, about=message)
        is_news = message.base_len > found.acked
        if is_news:
            found.acknowledge(message.base_len, now, self.rounds.round_s)
        if draft and (wrong := check_proposal(draft, self.welcome.vocab_size)):
            found.take_draft(replace(draft, tokens=(), probabilities=b"", proposal=None), now)
            return self.replies.refuse(peer.peer_id, wrong, now, about=message)
        if draft:
            found.take_draft(draft if self.welcome.trees else first_choices(draft), now)
        elif not is_news and (found.finished or message.base_len < len(found.tokens)):
            return self.replies.repeat(found, message.base_len, now)  # a repeated Ack requests the verdict
        return []

    def reject(self, peer_id: bytes, error: ProtocolError, now: float, principal: str | None = None) -> list[Send]:
        """Refuses bytes that are not a valid message. Affects only their sender."""
        if (instead := self.replies.listen(peer_id, now, principal)) is not None:
            return instead
        client = self.register.name_of(principal)
        return self.replies.refuse(peer_id, refusal_for(error), now, principal=principal, client=client)

    def fail(self, peer_id: bytes, message: UpMessage | ProtocolError, why: str, now: float) -> list[Send]:
        """Drops the session of a message that raised an exception: its state may be half changed.

        No session ends if the message concerns none, or another client's. Other sessions are unaffected.
        """
        peer = self.peers.get(peer_id)
        if peer is None or isinstance(message, ProtocolError | Hello | Heartbeat | Leave):
            return []
        session = self.sessions.get(message.session_id)
        if session is not None and session.client is peer.client:
            self.sessions.drop(session)
        return self.replies.refuse(peer_id, message_failed(why), now, about=message)

    def count_bytes(self, peer_id: bytes, *, uplink: int = 0, downlink: int = 0) -> None:
        """Adds a message's bytes to its client's totals; bytes of unknown peers are not counted."""
        if peer := self.peers.get(peer_id):
            peer.client.count_bytes(uplink=uplink, downlink=downlink)

    def tick(self, now: float) -> list[Send]:
        """Drops peers without a lease, abandoned or stuck sessions, and their promises; sends heartbeats when due."""
        self.rate_limiter.expire(now)
        sends: list[Send] = []
        for session in self.register.expire(now, self.rounds.round_s):
            sends += self.replies.refuse(session.peer_id, NOT_ACKNOWLEDGED, now, about=session.opened)
        if self.rounds.in_flight is None:  # else its end shows who can move again
            self.admission.lapse(now)
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self.welcome.heartbeat_s
            sends += [Send(peer_id, Heartbeat(self.welcome.boot_id)) for peer_id in self.peers]
        return sends

    def drain(self) -> None:
        """Stops the node: opens no more sessions and starts no more rounds; the round in flight finishes normally."""
        self.draining = True

    def farewell(self, now: float) -> list[Send]:
        """Returns the messages to send after the final verdicts: the node stops. Does not count as an offence.

        Redirects open sessions to other replicas, if there are any.
        """
        return self.fleet.leave(now) + [Send(peer_id, STOPPING) for peer_id in self.peers]

    # -- rounds ----------------------------------------------------------------------------------------------------

    def admit(self, now: float) -> list[Send]:
        """Decides between two rounds on the promises requested meanwhile. Returns messages for the affected sessions.

        An exception raised here is not the fault of a round: `Admission.withdraw` recovers from it.
        """
        if self.rounds.in_flight is not None or self.draining:
            return []
        return self.admission.admit(self.rounds.num_rounds, now)

    def plan(self, now: float) -> Round | None:
        """Returns the next round if it may start now; else sets `wake_at` to the time of the next attempt.

        `rounds.finish` or `rounds.abort` ends the round.
        """
        if self.draining:
            self.wake_at = self._heartbeat_at
            return None
        planned = self.rounds.plan(now)
        self.wake_at = min(self.rounds.wake_at, self._heartbeat_at)
        return planned
