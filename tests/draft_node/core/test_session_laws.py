"""What holds in a draft node's session whatever verdicts, refusals and proposals come, in any order and any number.

The verify node is true to one text, but may say any part of it at any time, of any epoch, again and again.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from draft_node.core.actions import Action, Deliver, Fail, Finish, Propose, Proposed, Request, Send
from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S
from draft_node.core.retransmission import MAX_RESEND_S
from draft_node.core.session import Session
from draft_node.core.state import State
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import (
    Ack,
    Close,
    Draft,
    Offer,
    OpenSession,
    Refusal,
    Sampling,
    TokenLogprobs,
    Verdict,
    digest,
)
from tests.draft_node.core.scripted import ScriptedDrafter

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
TEXT = tuple(4 + at % 5 for at in range(30))
WRONG = (30,) * 20
CODES = ["unknown_session", "wrong_base", "not_assigned", "too_long", "stale_round", "stale_epoch", "too_many_sessions"]
TOLD = tuple(TokenLogprobs(-float(at)) for at in range(len(TEXT)))
POSITIONS = st.integers(0, len(TEXT))


class SessionLaws(RuleBasedStateMachine):
    """Beside the session there is only what it asked for and what its user got."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.delivered: list[int] = []
        self.told: list[TokenLogprobs] = []
        self.proposals: list[Propose] = []
        self.drafts: list[Draft] = []  # each once, in the order in which they were first sent
        self.epochs: list[int] = []
        self.offers: list[Offer] = []
        self.modelled: list[tuple[int, ...]] = []  # texts with what the draft model drafted after them
        self.ended: list[Action] = []

    @initialize(
        ahead=st.booleans(),
        drafts=st.booleans(),
        logprobs=st.booleans(),
        index=st.sampled_from([(), TEXT, TEXT[:7] + WRONG]),
        odds=st.sampled_from([0.0, 0.6, 1.0]),
        has_model=st.booleans(),
        capabilities=st.sampled_from([(), ("odds",), ("odds", "offers"), ("odds", "offers", "model_offers")]),
    )
    def begin(
        self,
        ahead: bool,
        drafts: bool,
        logprobs: bool,
        index: tuple[int, ...],
        odds: float,
        has_model: bool,
        capabilities: tuple[str, ...],
    ) -> None:
        request = Request(
            ID,
            PROMPT,
            Sampling(seed=5),
            max_tokens=len(TEXT),
            stop_ids=(0,),
            max_draft=8 * drafts,
            num_logprobs=0 if logprobs else None,
        )
        ngrams = ScriptedDrafter(request, text=PROMPT + index, odds=odds) if index and drafts else None
        self.session = Session(request, draft_ahead=ahead, ngrams=ngrams, has_model=has_model)
        self.capabilities = capabilities

    def _take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            match action:
                case Deliver():
                    assert not self.ended
                    self.delivered += action.tokens
                    self.told += action.logprobs
                case Propose():
                    assert self.session.has_model
                    self.proposals.append(action)
                case Finish() | Fail():
                    self.ended.append(action)
                case Send(message=Draft() as draft):
                    self._look_at(draft)
                case Send(message=Offer() as offer):
                    assert "offers" in self.capabilities
                    assert offer.base_len == len(PROMPT) + len(self.delivered)
                    assert self.session.state is State.ADVANCING
                    assert offer not in self.offers
                    if offer.source == "model":
                        self._look_at_chain(offer)
                    self.offers.append(offer)
                case Send(message=OpenSession() as opened):
                    assert opened.committed == tuple(self.delivered)
                    self.epochs.append(opened.epoch)
                case Send(message=Ack() as ack):
                    assert ack.base_len == len(PROMPT) + len(self.delivered)
        return actions

    def _look_at_chain(self, offer: Offer) -> None:
        """Checks that the draft model drafted this after this text, wherever it was asked to begin."""
        assert "model_offers" in self.capabilities
        assert self.session.draft_ahead
        offered = (*PROMPT, *self.delivered, *offer.tokens)
        assert any(text[: len(offered)] == offered for text in self.modelled)

    def _look_at(self, draft: Draft) -> None:
        """Checks that an (epoch, round) has one draft, that rounds rise, and that each draft is on the text or on
        hope."""
        known = {(known.epoch, known.round): known for known in self.drafts}
        assert known.get((draft.epoch, draft.round), draft) == draft
        if draft not in self.drafts:
            assert all((draft.epoch, draft.round) > key for key in known)
            self.drafts.append(draft)
            assert "odds" in self.capabilities or (draft.odds, draft.num_ngram) == (None, 0)
            text = (*PROMPT, *self.delivered)
            assert draft.assumes or (draft.base_len, draft.base_digest) == (len(text), digest(text))
            assert not draft.assumes or draft.base_len > len(text)

    # -- events ----------------------------------------------------------------------------------------------------

    @rule()
    def connect(self) -> None:
        actions = self._take(self.session.connect(self.now, capabilities=self.capabilities))
        assert bool(actions) == (not self.ended and not self.session.done)

    @rule()
    def disconnect(self) -> None:
        self.session.disconnect()

    def _verdict(
        self, begin: int, end: int, epoch: int, next_length: int, round: int | None, dropped: int | None
    ) -> None:
        reason: FinishReason | None = "length" if end == len(TEXT) else None
        num_drafted = 0 if round is None else end - begin
        verdict = Verdict(
            session_id=ID,
            epoch=epoch,
            round=round,
            base_len=len(PROMPT) + begin,
            tokens=TEXT[begin:end],
            num_verified=num_drafted,
            num_accepted=num_drafted,
            next_length=next_length,
            finish_reason=reason,
            logprobs=None if self.session.request.num_logprobs is None else TOLD[begin:end],
            dropped=dropped,
            may_draft=8 if (begin + end) % 4 and "model_offers" in self.capabilities else 0,
        )
        actions = self._take(self.session.receive(verdict, self.now))
        assert epoch == self.session.epoch or not actions

    @rule(begin=POSITIONS, length=POSITIONS, back=st.integers(0, 2), next_length=st.integers(0, 4))
    def any_verdict(self, begin: int, length: int, back: int, next_length: int) -> None:
        end = min(len(TEXT), begin + length)
        self._verdict(begin, end, max(0, self.session.epoch - back), next_length, None, None)

    @rule(length=st.integers(1, 4), next_length=st.integers(0, 4), again=st.integers(0, 3), dropped=st.booleans())
    def next_verdict(self, length: int, next_length: int, again: int, dropped: bool) -> None:
        """What follows, perhaps with some of what came before it, as an answer to the newest draft."""
        at = len(self.delivered)
        answered = self.drafts[-1].round if self.drafts else None
        begin, end = max(0, at - again), min(len(TEXT), at + length)
        self._verdict(begin, end, self.session.epoch, next_length, answered, self.session.round if dropped else None)

    @rule(code=st.sampled_from(CODES), back=st.integers(0, 1))
    def refusal(self, code: str, back: int) -> None:
        self._take(self.session.receive(Refusal(code, "what", "do", ID, max(0, self.session.epoch - back)), self.now))

    @rule(which=st.integers(0, 3), length=st.integers(0, 9), right=st.booleans())
    def proposed(self, which: int, length: int, right: bool) -> None:
        """An answer to one of the last Proposes, perhaps not the first."""
        if not self.proposals:
            return
        wanted = self.proposals[-min(which + 1, len(self.proposals))]
        at = len(wanted.tokens) - len(PROMPT)
        drafted = tuple(TEXT[at : at + min(length, wanted.length)]) if right else (30,) * min(length, wanted.length)
        guess, drafted = (drafted[0], drafted[1:]) if wanted.ahead and drafted else (None, drafted)
        proposal = Proposed(ID, wanted.epoch, wanted.round, drafted, None, 0.1, guess)
        self.modelled.append((*wanted.tokens, *proposal.tokens))
        is_wanted = (wanted.epoch, wanted.round) == (self.session.epoch, self.session.round)
        actions = self._take(self.session.proposed(proposal, self.now))
        assert is_wanted or not actions

    @rule(seconds=st.sampled_from([0.1, 1.0, 9.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.session.tick(self.now))

    @precondition(lambda self: self.session.is_open)
    @rule()
    def wait(self) -> None:
        """However it stands: when its time has come, it says something."""
        self.now = max(self.now, self.session.resend_at)
        before = self.session.resend_at
        assert self._take(self.session.tick(self.now))
        assert self.session.resend_at > before or self.session.done

    @precondition(lambda self: len(self.delivered) > 10)
    @rule()
    def cancel(self) -> None:
        was_open = self.session.is_open
        actions = self.session.cancel()
        assert [type(action.message) for action in actions if isinstance(action, Send)] == [Close] * was_open

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def every_token_is_delivered_once_and_in_order(self) -> None:
        assert tuple(self.delivered) == TEXT[: len(self.delivered)]
        assert self.session.committed == tuple(self.delivered)
        wanted = self.session.request.num_logprobs is not None
        assert tuple(self.told) == TOLD[: len(self.delivered) * wanted]

    @invariant()
    def it_ends_once_and_with_the_whole_text(self) -> None:
        assert len(self.ended) <= 1
        if self.ended and isinstance(self.ended[0], Finish):
            assert len(self.delivered) == len(TEXT)
        if self.ended:
            assert self.session.done
            assert self.session.tick(self.now + 100.0) == []

    @invariant()
    def epochs_rise(self) -> None:
        assert self.epochs == sorted(set(self.epochs))

    @invariant()
    def there_is_always_something_to_wait_for(self) -> None:
        if not self.session.is_open:
            return
        assert self.session.resend_at <= self.now + max(DRAFTING_TIMEOUT_S, MAX_RESEND_S)
        if self.session.state is State.PROPOSING:
            newest = self.proposals[-1]
            assert (newest.epoch, newest.round) == (self.session.epoch, self.session.round)


TestSessionLaws = SessionLaws.TestCase
TestSessionLaws.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
