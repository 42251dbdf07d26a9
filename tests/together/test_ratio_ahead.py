"""Drafting ahead under the ratio rule: both nodes' state machines and real models, and still the target's law.

Looked at are the two tokens that follow wherever a draft made ahead was used, since it is these that it was about.
Whether it is used must depend on what it assumed, and never on what it drew.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch

from draft_node.core.actions import Action, Deliver, Finish, Propose, Proposed, Request, Send
from draft_node.core.drafts.ahead_rate import AheadRate
from draft_node.core.session import Session
from draft_node.model.drafter import Drafter
from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.messages import Sampling, Verdict
from tests.exact import chi_square
from tests.fakes import make_core, make_hello, session_id
from tests.micro import make_checkpoint, make_runner
from verify_node.target.target import Target

pytestmark = pytest.mark.thorough

NUM_TOKENS = 8  # of the vocabulary
NUM_SESSIONS = 1000
AT_ONCE = 500
PROMPT = (3, 1, 4)
LENGTH = 9
TEMPERATURE = 0.5  # the sharper, the more guesses are right
TARGET = make_checkpoint(1, num_tokens=NUM_TOKENS)
DRAFT = make_checkpoint(1, shift=0.03, num_tokens=NUM_TOKENS)


Base = tuple[int, ...]


def expected(bases: list[Base]) -> torch.Tensor:
    """Mean over these texts of the law of the next two tokens under the target [NUM_TOKENS * NUM_TOKENS]."""
    total = torch.zeros(NUM_TOKENS, NUM_TOKENS, dtype=torch.double)
    for base, count in Counter(bases).items():
        texts = torch.tensor([[*base, token] for token in range(NUM_TOKENS)])
        with torch.inference_mode():
            logits = make_checkpoint(1).model(texts).logits[:, -2:]  # the same in every row, and after each token
        rows = torch.cat([logits[:1, 0], logits[:, 1]])
        sampling = SamplingBatch.of([Sampling(temperature=TEMPERATURE)] * len(rows))
        probs = to_probs(rows, sampling, num_tokens=NUM_TOKENS).double()[:, :NUM_TOKENS]
        total += count * probs[0, :, None] * probs[1:]
    return total.flatten() / len(bases)


class Crowd:
    """Many sessions at one verify node and one draft node, without a wire; a draft made ahead comes with its draft."""

    def __init__(self, lengths: tuple[int, int], keeps: Callable[[Proposed], bool] = lambda proposed: True) -> None:
        """lengths: of the first drafts, and of the others; keeps: whether a proposal made ahead is sent."""
        self.target = Target(TARGET, make_runner(TARGET, num_pages=4096))
        self.drafter = Drafter(DRAFT, make_runner(DRAFT, num_pages=4096), kind="lattice", k=5)
        self.lengths, self.keeps = lengths, keeps
        self.sessions: dict[bytes, Session] = {}
        self.num_cut = 0
        self.used: list[tuple[bytes, Base]] = []  # session, and the text that a draft made ahead was used on

    def p_value(self) -> float:
        """The p-value of the two tokens after every text on which a draft made ahead was used."""
        texts: dict[bytes, Base] = {}
        for first in range(0, NUM_SESSIONS, AT_ONCE):
            texts |= self._some(first)
        bases = [base for _, base in self.used]
        pairs = torch.tensor([texts[key][len(base) :][:2] for key, base in self.used])
        return chi_square.fits(pairs[:, 0] * NUM_TOKENS + pairs[:, 1], expected(bases))

    def _some(self, first: int) -> dict[bytes, Base]:
        requests = [
            Request(
                session_id(seed), PROMPT, Sampling(temperature=TEMPERATURE, seed=seed), LENGTH, verification="ratio"
            )
            for seed in range(first, first + AT_ONCE)
        ]
        self.sessions = {each.session_id: Session(each, True, AheadRate(least=0.0)) for each in requests}
        pool: PagePool = self.target.runner.pool
        self.core = make_core(
            policy="fixed",
            pool=pool,
            vocab_size=NUM_TOKENS,
            budget=self.lengths[0] * AT_ONCE,
            max_round_tokens=1 << 16,
            max_sessions=AT_ONCE,
            max_client_sessions=AT_ONCE,
            validates=False,  # it looks at all sessions after each message, which takes minutes with 500 of them
        )
        self.core.receive(b"a", make_hello("a"), 0.0)
        for session in self.sessions.values():
            self._act(session.connect(0.0))
        while not all(session.done for session in self.sessions.values()):
            self._draft()
            self._round()
        for session in self.sessions.values():
            self.drafter.forget(session.request.session_id)
        self.core.plan(0.0)  # frees what is closed
        return {key: tuple(session.tokens) for key, session in self.sessions.items()}

    def _draft(self) -> None:
        while self.drafter.busy:
            for proposed in self.drafter.step():
                if proposed.guess is None or self.keeps(proposed):
                    self._act(self.sessions[proposed.session_id].proposed(proposed, 0.0))

    def _round(self) -> None:
        planned = self.core.plan(0.0)
        assert planned is not None
        aheads = {key: session.ahead for key, session in self.core.sessions.items() if session.ahead}
        result = self.target.run(planned)
        assert not any(outcome.invalid for outcome in result.outcomes)
        if planned.num_drafted:
            self.core.scheduler.budget = self.lengths[1] * AT_ONCE
        for send in self.core.finish(result.outcomes, 0.01, 0.0):
            assert isinstance(send.message, Verdict)
            key = send.message.session_id
            if (taken := self.core.sessions[key].draft) is not None:
                self.used.append((key, tuple(self.core.sessions[key].tokens)))
                self.num_cut += len(taken.tokens) < len(aheads[key].tokens)
            self._act(self.sessions[key].receive(send.message, 0.0))

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    answers = self.core.receive(b"a", action.message, 0.0)
                    assert not answers or answers[0].message.session_id
                case Propose():
                    self.drafter.add(action)
                case Deliver() | Finish():
                    pass


@pytest.mark.parametrize("lengths", [(1, 1), (2, 1)], ids=["as long", "cut"])
def test_what_was_drafted_ahead_has_the_targets_law(lengths):
    crowd = Crowd(lengths)
    p_value = crowd.p_value()
    assert len(crowd.used) > 0.2 * NUM_SESSIONS  # else little was tested
    assert (crowd.num_cut > 0) == (lengths == (2, 1))
    assert p_value > chi_square.REJECT


def test_choosing_by_what_was_drawn_is_seen_in_the_law():
    assert Crowd((1, 1), keeps=lambda proposed: proposed.tokens[0] == 0).p_value() < chi_square.REJECT
