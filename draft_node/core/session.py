"""One generation's life at the draft node, as a state machine: events in, actions out. No I/O, no clock, no torch.

Knows nothing about HTTP, sockets or models. Whoever drives it feeds it the verify node's messages, finished proposals
and the time, and carries out the actions: send a message, have the draft model propose, give tokens to the user.
`state.py` draws the states; what there is of its text is in `text.py`, what is drafted for it in `drafts`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from draft_node.core.actions import Action, Deliver, Fail, Finish, Proposed, Request, Send, Statistics
from draft_node.core.drafts.ahead import Ahead
from draft_node.core.drafts.ahead_rate import AheadRate
from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S, Asking
from draft_node.core.drafts.assigned import Assigned
from draft_node.core.drafts.choice import Drafters
from draft_node.core.drafts.in_flight import InFlight
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.resting import Resting
from draft_node.core.drafts.unasked import Unasked
from draft_node.core.local import Local, Terms
from draft_node.core.refusals import Reaction, Refusals
from draft_node.core.retransmission import RetransmissionTimer
from draft_node.core.state import State
from draft_node.core.target import text_end, unserved
from draft_node.core.text import Text
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.messages import Ack, Admitted, Close, Redirect, Refusal, Verdict


@dataclass(slots=True, eq=False)
class Session:
    """The state machine of one request."""

    request: Request
    draft_ahead: bool = False
    ahead_rate: AheadRate = field(default_factory=AheadRate)  # at which drafts made ahead come true
    ngrams: NgramDrafter | None = None  # what drafts for it beside the draft model
    has_model: bool = True  # the node has a draft model
    resting: Resting = field(default_factory=Resting)  # of that model
    state: State = State.OFFLINE
    target: str | None = None  # fingerprint of the target that its text is of; None until there was one
    statistics: Statistics = field(default_factory=Statistics)
    resend_at: float = 0.0  # when `tick` has something to do
    promised: bool | None = None  # its SLO, by the verify node; None: nothing was said of it
    num_hops: int = 0  # redirects since its last token
    is_complete: bool = False  # the verify node has said that the text is at its end
    text: Text = field(init=False)
    _asking: Asking = field(init=False)
    _in_flight: InFlight = field(init=False)
    _assigned: Assigned = field(init=False)
    _unasked: Unasked | None = None  # None where it offers nothing
    _local: Local | None = None  # what is written without the verify node
    _timer: RetransmissionTimer = field(default_factory=RetransmissionTimer)
    _refusals: Refusals = field(default_factory=Refusals)
    _capabilities: frozenset[str] = frozenset()  # of the verify node

    def __post_init__(self) -> None:
        self.target = self.request.target
        self.text = Text(self.request)
        self._asking = Asking(self.request)
        drafters = Drafters(self.request, self.has_model, self.ngrams)
        drafts_ahead = self.draft_ahead and drafters.uses_model
        self._in_flight = InFlight(Ahead(self.request, self.statistics, self.ahead_rate, drafts_ahead))
        self._assigned = Assigned(self._asking, drafters, self._in_flight)

    @property
    def epoch(self) -> int:
        """How often it was opened."""
        return self._asking.epoch

    @property
    def round(self) -> int:
        return self._asking.round

    @property
    def tokens(self) -> list[int]:
        """Prompt and committed."""
        return self.text.tokens

    @property
    def committed(self) -> tuple[int, ...]:
        return self.text.committed

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def is_open(self) -> bool:
        return self.state.is_open

    # -- events ----------------------------------------------------------------------------------------------------

    def connect(
        self, now: float, target: str = "", context_len: int | None = None, capabilities: Iterable[str] = ()
    ) -> list[Action]:
        """The verify node is there (again), with the target model of this fingerprint and context.

        capabilities: what it understands beyond version 2 of the protocol, of `Capability`.
        """
        if self.done:
            return []
        end = text_end(len(self.request.prompt), len(self.tokens), context_len, before=self.target, now=target)
        self.target = target if self.target is None else self.target
        self._capabilities = frozenset(capabilities)
        self._in_flight.tells_odds = self._asking.tells_odds = "odds" in self._capabilities
        drafts_on = self.draft_ahead and self._assigned.drafters.uses_model
        self._unasked = Unasked.begin_at(
            self._asking, self._capabilities, self.ngrams, self.resting, drafts_on=drafts_on
        )
        end = end or unserved(self.request, self._capabilities, begins=not self.committed)
        if end is None:
            return self._open(now)
        self.state = State.DONE  # the verify node does not know the session: nothing has to be closed there
        return [end]

    def _open(self, now: float) -> list[Action]:
        """Opens the session with what is committed, and warms the draft model's cache."""
        self._asking.opened()
        self.promised = None
        self._in_flight.clear()
        self.text.opened()
        self._timer.begin()
        self._enter(State.OPENING, now)
        warm = self._assigned.warm(self.tokens)
        if self._unasked is not None:
            self._unasked.begin(self.tokens)
        return [Send(self.text.open(self.epoch, now, self._capabilities, num_hops=self.num_hops)), *warm]

    def disconnect(self) -> None:
        """The verify node is away: keep prompt and committed tokens, and wait for `connect`."""
        if self.state not in (State.DONE, State.LOCAL):
            self.state = State.OFFLINE
            self._in_flight.clear()

    def redirected(self, redirect: Redirect) -> bool:
        """The verify node has closed it, and names another; returns whether that was said of it as it is open now."""
        if redirect.epoch != self.epoch or not self.is_open:
            return False
        self.num_hops = min(max(redirect.hops, self.num_hops + 1), MAX_HOPS)
        self.disconnect()
        return True

    def postpone(self) -> None:
        """It is not open any more, and waits until `connect`."""
        self.state = State.POSTPONED
        self._in_flight.clear()

    def give_way(self) -> list[Action]:
        """Its place is given to another: the session is closed at the verify node, until `connect` opens it again."""
        if not self.is_open:
            return []
        self.postpone()
        return [Send(Close(self.request.session_id, self.epoch))]

    def fall_back(self, terms: Terms, now: float) -> list[Action]:
        """The verify node has been away for too long: the draft model goes on alone, until `connect`."""
        if self.state is not State.OFFLINE:
            return []
        self._local = Local(self.text, self._asking, self.statistics, terms, wrote_at=now)
        return self._go_on_locally(self._local, self._local.begin(now))

    def receive(self, message: Admitted | Verdict | Refusal, now: float) -> list[Action]:
        """What is said of it. A message of another epoch, or for a session that is not open there, is ignored."""
        if message.epoch != self.epoch or not self.is_open:
            return []
        if isinstance(message, Verdict):
            return self._apply(message, now)
        if isinstance(message, Admitted):
            self.promised = message.tier == "promised"
            return []
        return self._refused(message, now)

    def proposed(self, proposal: Proposed, now: float) -> list[Action]:
        """The draft model is done: send its draft, unless it was made for a base of the past."""
        if self._unasked is not None:
            self._unasked.answered()
        if not self._asking.is_answered_by(proposal):
            return []
        if self.state is State.PROPOSING:
            return self._send_draft(self._assigned.or_spare(proposal), now)
        if self.state is State.ADVANCING and self._unasked is not None:
            return self._unasked.drafted(proposal, self.tokens)
        if self.state is State.LOCAL and self._local is not None:
            return self._go_on_locally(self._local, self._local.proposed(proposal, now))
        made = self._in_flight.make_ahead(proposal, len(self.tokens)) if self.state is State.WAITING else None
        return [Send(made)] if made is not None else []

    def tick(self, now: float) -> list[Action]:
        """Repeats the last message after a silence: the drafts in flight, byte for byte, or else an Ack.

        A draft model that is not done by then is not waited for: what the n-gram index says is sent, or an empty draft.
        The verify node counts its time as round trip, and so asks for drafts more rarely.
        """
        if now < self.resend_at or self.state in (State.DONE, State.OFFLINE, State.POSTPONED):
            return []
        if self.state is State.PROPOSING:
            given_up = Proposed(self.request.session_id, self.epoch, self.round, ())
            return self.proposed(given_up, now)
        if self.state is State.LOCAL and self._local is not None:
            return self._go_on_locally(self._local, self._local.ask_again(now))
        self.resend_at = now + self._timer.again()
        self.statistics.num_resends += 1
        in_flight: list[Action] = [Send(draft) for draft in self._in_flight]
        return in_flight or [Send(self._acknowledgement())]

    def cancel(self) -> list[Action]:
        """The user went away."""
        was_open, self.state = self.is_open, State.DONE
        return [Send(Close(self.request.session_id, self.epoch))] if was_open else []

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _apply(self, verdict: Verdict, now: float) -> list[Action]:
        """Takes what is new of a verdict, once; asks again where something before it is missing."""
        if verdict.base_len > len(self.tokens):
            return [Send(self._acknowledgement())] if self.text.asks_for_gap() else []
        new = self.text.apply(verdict, now)
        if new is None:
            return []
        self.num_hops = 0
        num_new = len(new.tokens)
        self.statistics.count(verdict, num_new, self._in_flight.num_ngram(verdict))
        if self._unasked is not None:
            self._unasked.observe(verdict, num_new)
        accepted = self._in_flight.accepted(verdict, len(self.tokens) - num_new, len(self.tokens))
        actions = self._go_on(verdict, now)
        if not num_new and new.of_prompt is None:
            return actions
        return [Deliver(new.tokens, new.logprobs, accepted, prompt_logprobs=new.of_prompt), *actions]

    def _go_on(self, verdict: Verdict, now: float) -> list[Action]:
        ahead = self._in_flight.answered(verdict, self.tokens)
        self._asking.verdict_came(verdict)
        self._refusals.answered()
        self._timer.answered(now)
        if verdict.finish_reason is not None:
            self.state, self.is_complete = State.DONE, True
            return [Send(Close(self.request.session_id, self.epoch)), Finish(verdict.finish_reason)]
        if verdict.next_length == 0:
            self._enter(State.ADVANCING, now)
            return self._offer(verdict)
        if self._unasked is not None:
            self._unasked.begin(self.tokens)
        if ahead is not None:
            self._enter(State.WAITING, now)
            asked = self._assigned.use_ahead(*ahead, verdict.next_length, self.tokens)
            return [Send(self._acknowledgement()), *asked]
        return self._begin_draft(verdict.next_length, now)

    def _offer(self, verdict: Verdict) -> list[Action]:
        """The session goes on by itself: what is expected to follow is offered, or else the verdict acknowledged."""
        if self._unasked is None:
            return [Send(self._acknowledgement())]
        offer = self._unasked.offer(verdict, self.tokens)
        return [Send(offer or self._acknowledgement()), *self._unasked.draft_on(self.tokens)]

    def _begin_draft(self, length: int, now: float) -> list[Action]:
        """A draft is awaited: it goes up at once, or the draft model is asked."""
        self.state = State.PROPOSING
        drafted = self._assigned.begin(length, self.tokens)
        if isinstance(drafted, Proposed):
            return self._send_draft(drafted, now)
        self.resend_at = now + DRAFTING_TIMEOUT_S
        return [drafted]

    def _send_draft(self, proposal: Proposed, now: float) -> list[Action]:
        """The draft is in flight from now on; meanwhile the draft model may go on."""
        self._enter(State.WAITING, now, is_timed=True)
        return [Send(self._assigned.put(proposal, self.tokens)), *self._assigned.draft_ahead(self.tokens)]

    def _go_on_locally(self, local: Local, actions: list[Action]) -> list[Action]:
        """The draft model writes alone, until the text is at its end or the verify node is back."""
        self.state = State.DONE if local.is_over else State.LOCAL
        self.resend_at = local.ask_at
        return actions

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refused(self, refusal: Refusal, now: float) -> list[Action]:
        self.statistics.num_refusals += 1
        match self._refusals.refused(refusal.code):
            case Reaction.WAIT:
                self.postpone()
            case Reaction.REOPEN:
                return self._open(now)
            case Reaction.FAIL:
                self.state = State.DONE
                closed = Close(self.request.session_id, self.epoch)
                return [Send(closed), Fail(refusal.code, f"{refusal.what}; {refusal.what_to_do}")]
        return []

    def _acknowledgement(self) -> Ack:
        return Ack(self.request.session_id, self.epoch, len(self.tokens))

    def _enter(self, state: State, now: float, *, is_timed: bool = False) -> None:
        self.state = state
        self.resend_at = now + self._timer.said(now, is_timed=is_timed)
