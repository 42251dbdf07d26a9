"""A draft node's session keeps its laws under any verdicts, refusals and proposals, in any order and number.

The verify node is true to one text, but may say any part of it at any time, of any epoch, again and again.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from draft_node.core.actions import Action, Deliver, Fail, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import MAX_RESEND_S, Session, State
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Refusal, Sampling, TokenLogprobs, Verdict
from tests.draft_node.core.scripted import ID, PROMPT, ScriptedDrafter
from tests.fakes import make_welcome

TEXT = tuple(4 + at % 5 for at in range(30))
WRONG = (30,) * 20
CODES = ["unknown_session", "wrong_base", "too_long", "stale_epoch", "too_many_sessions", "too_many_prompt_logprobs"]
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
        self.permitted = 0  # by the newest verdict that counted
        self.modelled: list[tuple[int, ...]] = []  # texts with what the draft model drafted after them
        self.answered: set[tuple[int, int]] = set()  # questions to the draft model
        self.ended: list[Action] = []

    @initialize(
        verification=st.sampled_from(["match", "ratio"]),
        drafts=st.booleans(),
        logprobs=st.booleans(),
        index=st.sampled_from([(), TEXT, TEXT[:7] + WRONG]),
        probabilities=st.sampled_from([0.0, 0.6, 1.0]),
        has_model=st.booleans(),
    )
    def begin(self, verification, drafts, logprobs, index, probabilities, has_model):
        asked = {"verification": verification, "max_draft": 8 * drafts, "num_logprobs": 0 if logprobs else None}
        request = Generation(ID, PROMPT, Sampling(seed=5), max_tokens=len(TEXT), stop_ids=(0,), **asked)
        ngrams = ScriptedDrafter(request, text=PROMPT + index, probabilities=probabilities)
        has_index = index and drafts
        self.session = Session(request, ngrams=ngrams if has_index else None, num_parallel=1 if has_model else None)

    def _take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            match action:
                case Deliver():
                    assert not self.ended
                    self.delivered += action.tokens
                    self.told += action.logprobs
                case Propose():
                    assert self.session.num_parallel
                    assert all((action.epoch, action.round) > (one.epoch, one.round) for one in self.proposals)
                    self.proposals.append(action)
                case Finish() | Fail():
                    self.ended.append(action)
                case Send(message=Draft() as draft):
                    self._look_at(draft)
                case Send(message=OpenSession() as opened):
                    assert opened.committed == tuple(self.delivered)
                    self.epochs.append(opened.epoch)
                case Send(message=Ack() as ack):
                    assert ack.base_len == len(PROMPT) + len(self.delivered)
        return actions

    def _look_at(self, draft: Draft) -> None:
        """Checks that it is on the text, that its drafter drafted it there, and that none follows a complete one."""
        assert self.session.state is State.RUNNING
        assert (draft.epoch, draft.base_len) == (self.session.epoch, len(PROMPT) + len(self.delivered))
        drafted = (*PROMPT, *self.delivered, *draft.tokens)
        if draft.source == "model":
            assert any(text[: len(drafted)] == drafted for text in self.modelled)
        by_ratio = self.session.request.verification == "ratio"
        assert bool(draft.probabilities) == bool(draft.tokens and not by_ratio)
        if by_ratio:
            assert draft.complete
            assert len(draft.tokens) <= self.permitted
        if draft in self.drafts:
            return
        before = [one for one in self.drafts if (one.epoch, one.base_len) == (draft.epoch, draft.base_len)]
        assert not any(one.complete for one in before)
        self.drafts.append(draft)

    # -- events ----------------------------------------------------------------------------------------------------

    @rule()
    def connect(self) -> None:
        actions = self._take(self.session.connect(self.now, make_welcome()))
        assert bool(actions) == (not self.ended and not self.session.done)

    @rule()
    def disconnect(self) -> None:
        self.session.disconnect()

    def _verdict(self, begin: int, end: int, epoch: int, may_draft: int, *, accepted: bool = False) -> None:
        reason: FinishReason | None = "length" if end == len(TEXT) else None
        logprobs = None if self.session.request.num_logprobs is None else TOLD[begin:end]
        tokens, num_accepted = TEXT[begin:end], (end - begin) * accepted
        verdict = Verdict(ID, epoch, len(PROMPT) + begin, tokens, num_accepted, num_accepted, may_draft, reason)
        verdict = replace(verdict, source="model" if accepted else None, logprobs=logprobs)
        is_new = begin <= len(self.delivered) < end and self.session.is_open and epoch == self.session.epoch
        self.permitted = may_draft if is_new else self.permitted
        actions = self._take(self.session.receive(verdict, self.now))
        assert epoch == self.session.epoch or not actions
        if is_new and reason is None:
            self._look_whether_it_is_answered(actions)

    def _look_whether_it_is_answered(self, actions: list[Action]) -> None:
        """One message answers a verdict, and where a draft is waited for, one comes or the draft model is at work."""
        [answered] = [action.message for action in actions if isinstance(action, Send)]
        newest = self.drafts[-1] if self.drafts else None
        if isinstance(answered, Draft) or not self.permitted or not self.session.request.max_draft:
            return
        asked = (self.proposals[-1].epoch, self.proposals[-1].round) if self.proposals else None
        is_at_work = asked == (self.session.epoch, self.session.stream.round) and asked not in self.answered
        assert is_at_work or (newest is not None and newest.complete and newest.epoch == self.session.epoch)

    @rule(begin=POSITIONS, length=POSITIONS, back=st.integers(0, 2), may_draft=st.integers(0, 9))
    def any_verdict(self, begin: int, length: int, back: int, may_draft: int) -> None:
        end = min(len(TEXT), begin + length)
        self._verdict(begin, end, max(0, self.session.epoch - back), may_draft)

    @rule(length=st.integers(1, 4), may_draft=st.integers(0, 9), again=st.integers(0, 3), accepted=st.booleans())
    def next_verdict(self, length: int, may_draft: int, again: int, accepted: bool) -> None:
        """Delivers the next tokens, perhaps with some that came before."""
        at = len(self.delivered)
        begin, end = max(0, at - again), min(len(TEXT), at + length)
        self._verdict(begin, end, self.session.epoch, may_draft, accepted=accepted)

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
        proposal = Proposed(ID, wanted.epoch, wanted.round, drafted)
        self.modelled.append((*wanted.tokens, *proposal.tokens))
        self.answered.add((wanted.epoch, wanted.round))
        is_wanted = (wanted.epoch, wanted.round) == (self.session.epoch, self.session.stream.round)
        actions = self._take(self.session.proposed(proposal))
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
        assert self.session.text.committed == tuple(self.delivered)
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
        assert not self.session.is_open or self.session.resend_at <= self.now + MAX_RESEND_S


TestSessionLaws = SessionLaws.TestCase
TestSessionLaws.settings = settings(max_examples=150, stateful_step_count=50, derandomize=True, database=None)
