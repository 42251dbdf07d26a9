"""One generation's life at the draft node, as a state machine: events in, actions out. No I/O, no clock, no torch.

Knows nothing about HTTP, sockets or models. Whoever drives it feeds it the verify node's messages, finished proposals
and the time, and carries out the actions: send a message, have the draft model propose, give tokens to the user.

    OFFLINE --connect--> OPENING --Verdict--> PROPOSING --proposed--> WAITING --Verdict--> PROPOSING ...
                                     |  next_length 0: ADVANCING --Verdict--> ... |
                                     |  drafted ahead rightly: WAITING --Verdict--> ... |
                                     |  drafted without the model: WAITING --Verdict--> ... |
    any state --disconnect, redirected--> OFFLINE; --finish_reason, cancel, failure--> DONE
    any state --"try later", give_way--> POSTPONED --connect--> OPENING
    OFFLINE --fall_back--> LOCAL --proposed--> LOCAL ... --connect--> OPENING; --end of the text, failure--> DONE
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from draft_node.core.actions import Action, Deliver, Fail, Finish, Propose, Proposed, Request, Send, Statistics
from draft_node.core.drafts.ahead import Ahead
from draft_node.core.drafts.ahead_rate import AheadRate
from draft_node.core.drafts.chain import Chain
from draft_node.core.drafts.choice import Drafters
from draft_node.core.drafts.in_flight import InFlight
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.offers import Offers
from draft_node.core.drafts.resting import Resting
from draft_node.core.local import RETRY_S, Local, Terms
from draft_node.core.refusals import Reaction, Refusals
from draft_node.core.retransmission import RetransmissionTimer
from draft_node.core.target import text_end, unserved
from goodspeed.wire import odds
from goodspeed.wire.fields import MAX_HOPS
from goodspeed.wire.messages import Ack, Admitted, Close, Draft, Redirect, Refusal, Verdict

DRAFTING_TIMEOUT_S = 5.0
"""A draft model that takes longer is not waited for: an empty draft goes up, and the verify node goes on alone."""


class State(Enum):
    """The states of a session; see the module's picture."""

    OFFLINE = "offline"
    OPENING = "opening"
    PROPOSING = "proposing"
    WAITING = "waiting"
    ADVANCING = "advancing"
    POSTPONED = "postponed"  # its place is another's; `line.py` knows when it has one again
    LOCAL = "local"  # the verify node is away, and the draft model writes alone
    DONE = "done"


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
    epoch: int = 0
    round: int = -1  # of the last proposal asked for
    tokens: list[int] = field(default_factory=list)  # prompt and committed
    target: str | None = None  # fingerprint of the target that its text is of; None until there was one
    statistics: Statistics = field(default_factory=Statistics)
    resend_at: float = 0.0  # when `tick` has something to do
    first_at: float | None = None  # when its user had the first token
    promised: bool | None = None  # its SLO, by the verify node; None: nothing was said of it
    num_hops: int = 0  # redirects since its last token
    is_complete: bool = False  # the verify node has said that the text is at its end
    _in_flight: InFlight = field(init=False)
    _drafters: Drafters = field(init=False)
    _offers: Offers | None = None  # None where it makes none
    _local: Local | None = None  # what is written without the verify node
    _timer: RetransmissionTimer = field(default_factory=RetransmissionTimer)
    _refusals: Refusals = field(default_factory=Refusals)
    _lacking_at: int = -1  # length of the text at which it was said that something is missing
    _length: int = 0  # of the draft asked for
    _spare: Proposed | None = None  # goes up if the draft model fails
    _least_odds: float = 0.0  # a drafted token is not verified where the odds up to it are lower
    _capabilities: frozenset[str] = frozenset()  # of the verify node
    _lacks_prompt_logprobs: bool = False  # they are wanted, and have not come

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        self.target = self.request.target
        self._lacks_prompt_logprobs = self.request.num_prompt_logprobs is not None
        self._drafters = Drafters(self.request, self.has_model, self.ngrams)
        drafts_ahead = self.draft_ahead and self._drafters.uses_model
        self._in_flight = InFlight(Ahead(self.request, self.statistics, self.ahead_rate, drafts_ahead))

    @property
    def committed(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.request.prompt) :])

    @property
    def num_committed(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def _tells_odds(self) -> bool:
        """Whether the verify node understands the odds of drafted tokens."""
        return "odds" in self._capabilities

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def is_open(self) -> bool:
        """Whether a verify node knows it, as far as this one can tell."""
        return self.state not in (State.DONE, State.OFFLINE, State.LOCAL, State.POSTPONED)

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
        self._in_flight.tells_odds = self._tells_odds
        self._offers = self._begin_offers()
        end = end or unserved(self.request, self._capabilities) or self._lacks_promise()
        if end is None:
            return self._open(now)
        self.state = State.DONE  # the verify node does not know the session: nothing has to be closed there
        return [end]

    def _lacks_promise(self) -> Fail | None:
        """The end of a text that is to be refused where its SLO is not promised, at a verify node that never does.

        One that is under way goes on.
        """
        insists = self.request.slo is not None and self.request.otherwise == "refuse" and not self.committed
        if not insists or "admission" in self._capabilities:
            return None
        return Fail("not_promised", "this verify node promises no service level; ask for best_effort otherwise")

    def _open(self, now: float) -> list[Action]:
        """Opens the session with what is committed, and warms the draft model's cache."""
        self.epoch += 1
        self.round += 1
        self.promised = None
        self._in_flight.clear()
        self._lacking_at = -1
        self._timer.begin()
        self._enter(State.OPENING, now)
        warm = [self._propose(0)] if self._drafters.uses_model else []
        if self._offers is not None:
            self._offers.begin(len(self.tokens))
        opened = self.request.open(
            self.epoch, self.committed, now, first_at=self.first_at, capabilities=self._capabilities
        )
        if "fleet" in self._capabilities:
            opened = replace(opened, hops=self.num_hops)
        if self._lacks_prompt_logprobs:
            opened = replace(opened, num_prompt_logprobs=self.request.num_prompt_logprobs)
        return [Send(opened), *warm]

    def _begin_offers(self) -> Offers | None:
        """What may be offered to this verify node. A node that drafts nothing ahead offers nothing of its model."""
        if "offers" not in self._capabilities or self.request.verification != "match":
            return None
        drafts_on = "model_offers" in self._capabilities and self.draft_ahead and self._drafters.uses_model
        chain = Chain(self.request) if drafts_on else None
        if self.ngrams is None and chain is None:
            return None
        offers_trees = "trees" in self._capabilities
        return Offers(self.request.session_id, self.ngrams, chain, self.resting, offers_trees)

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
        self._local = Local(self.request, terms, now)
        return self._go_on_locally(self._local, now)

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
        if self._offers is not None:
            self._offers.answered()
        if (proposal.epoch, proposal.round) != (self.epoch, self.round):
            return []
        if self.state is State.PROPOSING:
            return self._send_draft(proposal if proposal.tokens else self._spare or proposal, now)
        if self.state is State.ADVANCING and self._offers is not None:
            return self._drafted_on(self._offers, proposal)
        if self.state is State.LOCAL and self._local is not None:
            return self._write(self._local, proposal, now)
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
            return self._ask_again(self._local, now)
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
            return self._ask_for_what_is_missing()
        num_known = len(self.tokens) - verdict.base_len
        new, logprobs = verdict.tokens[num_known:], (verdict.logprobs or ())[num_known:]
        if not new and verdict.finish_reason is None:
            return []
        self.tokens += new
        self.num_hops = 0
        self.first_at = now if self.first_at is None and new else self.first_at
        self.statistics.count(verdict, len(new), self._in_flight.num_ngram(verdict))
        if self._offers is not None:
            self._offers.observe(len(new), verdict.num_accepted if verdict.source == "model" else 0)
        accepted = self._in_flight.accepted(verdict, len(self.tokens) - len(new), len(self.tokens))
        of_prompt = verdict.prompt_logprobs if self._lacks_prompt_logprobs else None
        self._lacks_prompt_logprobs = self._lacks_prompt_logprobs and of_prompt is None
        is_told = bool(new) or of_prompt is not None
        actions: list[Action] = [Deliver(new, logprobs, accepted, prompt_logprobs=of_prompt)] if is_told else []
        return actions + self._go_on(verdict, now)

    def _ask_for_what_is_missing(self) -> list[Action]:
        """Asks once per gap, and again after a silence: on a slow line hundreds of verdicts may follow the lost one.

        The verify node answers each Ack with everything unacknowledged, and would take one Ack per verdict for a flood.
        """
        if self._lacking_at == len(self.tokens):
            return []
        self._lacking_at = len(self.tokens)
        return [Send(self._acknowledgement())]

    def _go_on(self, verdict: Verdict, now: float) -> list[Action]:
        ahead = self._in_flight.answered(verdict, self.tokens)
        self._least_odds = odds.bound(verdict.least_odds)
        self._refusals.answered()
        self._timer.answered(now)
        if verdict.finish_reason is not None:
            self.state, self.is_complete = State.DONE, True
            return [Send(Close(self.request.session_id, self.epoch)), Finish(verdict.finish_reason)]
        if verdict.next_length == 0:
            self._enter(State.ADVANCING, now)
            return self._offer(verdict)
        if self._offers is not None:
            self._offers.begin(len(self.tokens))
        self._length = verdict.next_length
        if ahead is not None:
            self._enter(State.WAITING, now)
            return self._send(*ahead, Send(self._acknowledgement()))
        return self._begin_draft(verdict.next_length, now)

    def _offer(self, verdict: Verdict) -> list[Action]:
        """The session goes on by itself: what is expected to follow is offered, or else the verdict acknowledged."""
        if self._offers is None:
            return [Send(self._acknowledgement())]
        self._offers.permitted = min(verdict.offer_length, self.request.max_draft)
        offer = self._offers.next(self.tokens, self.epoch, self._least_odds)
        return [Send(offer or self._acknowledgement()), *self._draft_on(self._offers)]

    def _draft_on(self, offers: Offers) -> list[Action]:
        """Has the draft model go on with its chain, or with a new one if the text has left that."""
        wanted = offers.wanted(self.tokens, self._least_odds)
        if wanted is None:
            return []
        self.round += 1
        asked = self._asked(wanted.tokens, wanted.length)
        num_unverified = len(wanted.tokens) - len(self.tokens)
        return [
            replace(
                asked,
                least_odds=wanted.least_odds,
                unasked=True,
                num_unverified=num_unverified,
                wants_alternatives=offers.offers_trees,
            )
        ]

    def _drafted_on(self, offers: Offers, proposal: Proposed) -> list[Action]:
        """The draft model drafted more of its chain, or failed: then it is asked again after the next verdict."""
        if not offers.take(proposal):
            return []
        drafting, offer = self._draft_on(offers), offers.next(self.tokens, self.epoch, self._least_odds)
        return [Send(offer), *drafting] if offer is not None else drafting

    def _begin_draft(self, length: int, now: float) -> list[Action]:
        """A draft is awaited: it goes up at once, or the draft model is asked."""
        self.round += 1
        self.state = State.PROPOSING
        choice = self._drafters.choose(self.tokens, self.epoch, self.round, length, self._least_odds)
        if not choice.asks_model:
            return self._send_draft(choice.proposal, now)
        self._spare = choice.proposal
        self.resend_at = now + DRAFTING_TIMEOUT_S
        return [self._propose(length)]

    # -- without the verify node -----------------------------------------------------------------------------------

    def _go_on_locally(self, local: Local, now: float) -> list[Action]:
        end = local.end(len(self.tokens))
        if end is not None:
            self.state = State.DONE
            return [end]
        self.state = State.LOCAL
        self.round += 1
        return [self._propose_locally(now)]

    def _propose_locally(self, now: float) -> Propose:
        self.resend_at = now + DRAFTING_TIMEOUT_S
        return Propose(self.request, self.epoch, self.round, tuple(self.tokens), 1, local=True)

    def _write(self, local: Local, proposal: Proposed, now: float) -> list[Action]:
        """The token that the draft model drew is the text's next, if it drew one."""
        if not proposal.tokens:
            self.resend_at = now + RETRY_S
            return []
        token = proposal.tokens[0]
        if token in self.request.stop_ids:
            self.state = State.DONE
            return [Finish("stop")]
        self.tokens.append(token)
        self.first_at = now if self.first_at is None else self.first_at
        self.statistics.num_tokens += 1
        self.statistics.num_local += 1
        local.wrote_at = now
        return [Deliver((token,), local=True), *self._go_on_locally(local, now)]

    def _ask_again(self, local: Local, now: float) -> list[Action]:
        """Asks again in the same round: the first answer counts, and a second one would be the same."""
        failure = local.give_up(now)
        if failure is None:
            return [self._propose_locally(now)]
        self.state = State.DONE
        return [failure]

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

    # -- small things ----------------------------------------------------------------------------------------------

    def _propose(self, length: int) -> Propose:
        self._length = length
        return self._asked(tuple(self.tokens), length)

    def _send_draft(self, proposal: Proposed, now: float) -> list[Action]:
        draft = self._in_flight.make(proposal, self.tokens, self._length)
        self._enter(State.WAITING, now, is_timed=True)
        return self._send(draft, proposal.odds, Send(draft), proposal.num_ngram)

    def _send(self, draft: Draft, path_odds: float, word: Send, num_ngram: int = 0) -> list[Action]:
        """This draft is in flight from now on; meanwhile the draft model may go on."""
        self._in_flight.put(draft, path_odds, self._length, num_ngram)
        return [word, *self._propose_ahead()]

    def _propose_ahead(self) -> list[Action]:
        """Asks for the next draft, after the one that is now in flight and a guess of the token that follows it."""
        length = self._in_flight.length_ahead(len(self.tokens))
        if not length:
            return []
        self.round += 1
        base = (*self.tokens, *self._in_flight.drafted)
        return [self._asked(base, length + 1, ahead=True)]

    def _asked(self, tokens: tuple[int, ...], length: int, *, ahead: bool = False) -> Propose:
        return Propose(
            self.request,
            self.epoch,
            self.round,
            tokens,
            length,
            ahead=ahead,
            least_odds=self._least_odds,
            wants_chances=self._tells_odds and length > 0,
        )

    def _acknowledgement(self) -> Ack:
        return Ack(self.request.session_id, self.epoch, len(self.tokens))

    def _enter(self, state: State, now: float, *, is_timed: bool = False) -> None:
        self.state = state
        self.resend_at = now + self._timer.said(now, is_timed=is_timed)
