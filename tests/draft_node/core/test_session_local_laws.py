"""A session keeps its laws while the verify node goes and comes, however late verdicts and proposals are.

Two writers, each a function of the whole text so far: whoever wrote a token, it must be the one that this writer puts
there, and be marked as its own. The verify node goes on from what it was opened with, epoch by epoch.
"""

from hashlib import blake2b

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from draft_node.core.actions import Action, Deliver, Fail, Finish, Propose, Proposed, Request, Send
from draft_node.core.drafts.asking import DRAFTING_TIMEOUT_S
from draft_node.core.local import GIVE_UP_S, Terms
from draft_node.core.retransmission import MAX_RESEND_S
from draft_node.core.session import Session, State
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import Ack, Close, Draft, OpenSession, Sampling, Verdict

ID = b"0123456789abcdef"
PROMPT = (1, 2, 3)
STOP = 0
MAX_TOKENS, MIN_TOKENS = 14, 3


def writer(text: tuple[int, ...], name: str, *, may_stop: bool) -> int:
    """The token that this writer puts after a text; no two texts or writers are alike."""
    number = int.from_bytes(blake2b(repr((text, name)).encode(), digest_size=8).digest())
    return 1000 + 10 * (number % 10**6) + len(name) if number % 29 or not may_stop else STOP


def target(text: tuple[int, ...]) -> int:
    return writer(text, "target", may_stop=len(text) >= len(PROMPT) + MIN_TOKENS)


def draft(text: tuple[int, ...]) -> int:
    return writer(text, "draft", may_stop=len(text) >= len(PROMPT) + MIN_TOKENS)


class LocalLaws(RuleBasedStateMachine):
    """Beside the session there is only what it asked for and what its user got."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.given: list[tuple[int, bool]] = []  # token, and whether it was marked as the draft model's own
        self.proposals: list[Propose] = []
        self.opened: dict[int, tuple[int, ...]] = {}  # by epoch: what the verify node goes on from
        self.ended: list[Action] = []
        self.may_open = False

    @initialize(drafts=st.booleans(), context_len=st.sampled_from([12, 100]))
    def begin(self, drafts: bool, context_len: int) -> None:
        request = Request(
            ID, PROMPT, Sampling(seed=5), MAX_TOKENS, (STOP,), max_draft=8 * drafts, min_tokens=MIN_TOKENS
        )
        self.terms = Terms("away", context_len, 100)
        self.session = Session(request)

    @property
    def text(self) -> tuple[int, ...]:
        return (*PROMPT, *(token for token, _ in self.given))

    def _take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            match action:
                case Deliver():
                    assert not self.ended
                    assert action.tokens
                    for token in action.tokens:
                        assert token == (draft(self.text) if action.local else target(self.text))
                        self.given.append((token, action.local))
                case Propose():
                    assert action.tokens[: len(self.text)] == self.text
                    assert not action.local or (action.length, action.tokens) == (1, self.text)
                    self.proposals.append(action)
                case Finish() | Fail():
                    self.ended.append(action)
                case Send(message=OpenSession() as opened):
                    assert self.may_open
                    assert (*opened.prompt, *opened.committed) == self.text
                    assert opened.epoch not in self.opened
                    self.opened[opened.epoch] = self.text
                case Send(message=Draft() | Ack() | Close()):
                    assert self.session.state is not State.LOCAL
        return actions

    # -- events ----------------------------------------------------------------------------------------------------

    @rule()
    def connect(self) -> None:
        self.may_open = True
        assert bool(self._take(self.session.connect(self.now))) == (not self.ended)

    @rule()
    def disconnect(self) -> None:
        self.may_open = False
        self.session.disconnect()

    @rule(times=st.integers(0, 6))
    def fall(self, times: int) -> None:
        """Away, and for too long."""
        self.disconnect()
        self.fall_back()
        self.write(times)

    @rule()
    def fall_back(self) -> None:
        was_offline = self.session.state is State.OFFLINE
        assert bool(self._take(self.session.fall_back(self.terms, self.now))) == was_offline

    @rule(
        back=st.sampled_from([0, 0, 0, 1, 2]),
        skip=st.integers(-3, 3),
        length=st.integers(0, 4),
        may_draft=st.integers(0, 6),
    )
    def verdict(self, back: int, skip: int, length: int, may_draft: int) -> None:
        """Any part of what the target writes after the text of this epoch, or of one before."""
        epoch = self.session.epoch - back
        if epoch not in self.opened:
            return
        text = self.opened[epoch]
        reason: FinishReason | None = None
        first = max(len(text), len(self.text) + skip)
        while len(text) < first + length and reason is None:
            token = target(text)
            if token == STOP:
                reason = "stop"
                break
            text = (*text, token)
            reason = "length" if len(text) == len(PROMPT) + MAX_TOKENS else None
        told = Verdict(ID, epoch, min(first, len(text)), text[first:], 0, 0, may_draft, reason)
        was = self.session.state
        actions = self._take(self.session.receive(told, self.now))
        assert not actions or (back == 0 and was not in (State.LOCAL, State.OFFLINE))

    @rule(which=st.sampled_from([0, 0, 0, 1, 2]), empty=st.sampled_from([False, False, False, True]))
    def proposed(self, which: int, empty: bool) -> None:
        """An answer to one of the last Proposes, perhaps again."""
        if which >= len(self.proposals):
            return
        wanted, text = self.proposals[-1 - which], self.proposals[-1 - which].tokens
        for _ in range(0 if empty else wanted.length):
            text = (*text, draft(text))
        drafted = text[len(wanted.tokens) :]
        self._take(self.session.proposed(Proposed(ID, wanted.epoch, wanted.round, drafted), self.now))

    @rule(times=st.integers(1, 6))
    def write(self, times: int) -> None:
        """The draft model answers at once, several times."""
        for _ in range(times):
            self.proposed(0, False)

    @rule(seconds=st.sampled_from([0.1, 1.0, 9.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.session.tick(self.now))

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def every_token_is_given_once_and_in_order(self) -> None:
        assert self.session.committed == tuple(token for token, _ in self.given)
        assert len(self.given) <= MAX_TOKENS
        assert STOP not in self.session.committed
        assert self.session.statistics.num_local == sum(local for _, local in self.given)
        assert self.session.statistics.num_tokens == len(self.given)

    @invariant()
    def it_ends_once_and_where_it_should(self) -> None:
        assert len(self.ended) <= 1
        if not self.ended:
            return
        assert self.session.done
        assert self.session.tick(self.now + 2 * GIVE_UP_S) == []
        match self.ended[0]:
            case Finish(reason="length"):
                assert len(self.given) == MAX_TOKENS
            case Finish():
                assert STOP in (target(self.text), draft(self.text))
                assert len(self.given) >= MIN_TOKENS
            case Fail(code=code):
                assert code == "verify_away"

    @invariant()
    def there_is_always_something_to_wait_for(self) -> None:
        if self.session.state in (State.OFFLINE, State.DONE):
            return
        assert self.session.resend_at <= self.now + max(DRAFTING_TIMEOUT_S, MAX_RESEND_S)
        if self.session.state is State.LOCAL:
            newest = self.proposals[-1]
            assert (newest.local, newest.round, newest.tokens) == (True, self.session.asking.round, self.text)


TestLocalLaws = LocalLaws.TestCase
TestLocalLaws.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
