"""The ratio rule over the stream of drafts: both nodes' state machines and real models, and still the target's law.

Looked at are the two tokens after each text for which a draft was verified, since it is these that it was about. Which
drafts are verified, and how much of them, must depend on the text, and never on what the draft drew.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.actions import Action, Deliver, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.exact import positions, proposals
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.messages import Draft, Sampling, UpMessage, Verdict
from tests.exact import chi_square
from tests.fakes import make_core, make_hello, make_welcome, session_id
from tests.micro import make_checkpoint, make_runner
from tests.together.test_ratio import AT_ONCE, NUM_TOKENS, PROMPT, TARGET, joint
from verify_node.model.target import Target

NUM_SESSIONS = 1000
LENGTH = 6
TEMPERATURE = 1.0
DRAFT = make_checkpoint(1, shift=0.03, num_tokens=NUM_TOKENS)


Base = tuple[int, ...]
Spoil = Callable[[Draft], Draft]


def expected(bases: list[Base]) -> torch.Tensor:
    """Mean over these texts of the law of the next two tokens under the target [NUM_TOKENS * NUM_TOKENS]."""
    laws = [count * joint(Sampling(temperature=TEMPERATURE), base=base) for base, count in Counter(bases).items()]
    return torch.stack(laws).sum(0) / len(bases)


class Knowing:
    """An n-gram index that is sure of two tokens after some texts, and knows nothing of others."""

    def draft(self, tokens: Sequence[int], length: int, least_probability: float) -> Continuation:
        if tokens[-1] % 2:
            return Continuation()
        return Continuation((tokens[-1], 1)[:length], (0.9, 0.9)[:length])


class Crowd:
    """Many sessions, each of a client of its own, at one verify node and one draft model, without a wire."""

    def __init__(self, rounds: str, *, kind: str = "lattice", spoil: Spoil | None = None, knows: bool = False) -> None:
        """spoil: what becomes of drafts on their way. knows: an index drafts, too."""
        self.target = Target(TARGET, make_runner(TARGET, num_pages=4096))
        self.drafter = Drafter(DRAFT, make_runner(DRAFT, num_pages=4096), kind=kind, k=5)
        self.rounds, self.spoil, self.knows = rounds, spoil, knows
        self.sessions: dict[bytes, Session] = {}
        self.bases: list[tuple[bytes, Base]] = []  # session, and the text that its draft was verified after
        self.num_verified = self.num_accepted = 0
        self.sources: Counter[str | None] = Counter()

    def p_value(self) -> float:
        """The p-value of the two tokens after every text for which a draft was verified."""
        texts: dict[bytes, Base] = {}
        for first in range(0, NUM_SESSIONS, AT_ONCE):
            texts |= self._some(first)
        found = [(base, texts[key][len(base) :][:2]) for key, base in self.bases]
        found = [(base, after) for base, after in found if len(after) == 2]
        pairs = torch.tensor([after for _, after in found])
        return chi_square.fits(pairs[:, 0] * NUM_TOKENS + pairs[:, 1], expected([base for base, _ in found]))

    def _some(self, first: int) -> dict[bytes, Base]:
        requests = [
            Generation(
                session_id(seed), PROMPT, Sampling(temperature=TEMPERATURE, seed=seed), LENGTH, verification="ratio"
            )
            for seed in range(first, first + AT_ONCE)
        ]
        ngrams = Knowing() if self.knows else None
        self.sessions = {each.session_id: Session(each, ngrams) for each in requests}  # type: ignore[arg-type]
        self.core = make_core(
            rounds=self.rounds,
            policy="fixed",
            pool=self.target.runner.pool,
            vocab_size=NUM_TOKENS,
            budget=3 * AT_ONCE,
            max_round_tokens=1 << 16,
            max_sessions=AT_ONCE,
            validates=False,  # it looks at all sessions after each message, which takes minutes with 500 of them
        )
        for key, session in self.sessions.items():
            self.core.receive(key, make_hello(f"client-{int.from_bytes(key, 'big')}"), 0.0)
            self._act(key, session.connect(0.0, make_welcome()))
        while not all(session.done for session in self.sessions.values()):
            while self.drafter.busy:
                for proposed in self.drafter.step():
                    key = proposed.session_id
                    self._act(key, self.sessions[key].proposed(proposed))
            self._round()
        for session in self.sessions.values():
            self.drafter.forget(session.request.session_id)
        self.core.plan(0.0)  # frees what is closed
        return {key: tuple(session.tokens) for key, session in self.sessions.items()}

    def _round(self) -> None:
        planned = self.core.plan(0.0)
        assert planned is not None
        self.bases += [
            (entry.session_id, tuple(self.core.sessions[entry.session_id].tokens))
            for entry in planned.entries
            if entry.num_drafted
        ]
        result = self.target.run(planned)
        assert not any(outcome.invalid for outcome in result.outcomes)
        for send in self.core.rounds.finish(result.outcomes, 0.01, 0.0):
            verdict = send.message
            assert isinstance(verdict, Verdict)
            self.num_verified += verdict.num_verified
            self.num_accepted += verdict.num_accepted
            self.sources[verdict.source] += 1
            self._act(verdict.session_id, self.sessions[verdict.session_id].receive(verdict, 0.0))

    def _act(self, key: bytes, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    assert not self.core.receive(key, self._spoilt(action.message), 0.0)
                case Propose():
                    self.drafter.add(action)
                case Deliver() | Finish():
                    pass

    def _spoilt(self, message: UpMessage) -> UpMessage:
        is_draft = isinstance(message, Draft) and message.tokens and self.spoil is not None
        return self.spoil(message) if is_draft else message  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("rounds", ["barrier", "continuous"])
@pytest.mark.parametrize("kind", ["lattice", pytest.param("dense-fp32", marks=pytest.mark.thorough)])
def test_what_follows_a_draft_has_the_targets_law(rounds: str, kind: str) -> None:
    crowd = Crowd(rounds, kind=kind)
    p_value = crowd.p_value()
    assert len(crowd.bases) > NUM_SESSIONS  # more than one draft of each: the noise of a round is not another's
    assert 0.1 < crowd.num_accepted / crowd.num_verified < 0.9  # else little was tested
    assert set(crowd.sources) == {"model", None}
    assert p_value > chi_square.REJECT


@pytest.mark.thorough
def test_tokens_of_an_index_are_certain_and_leave_the_law_as_it_is() -> None:
    crowd = Crowd("continuous", knows=True)
    p_value = crowd.p_value()
    assert min(crowd.sources["model"], crowd.sources["ngram"]) > 0.3 * NUM_SESSIONS
    assert 0.1 < crowd.num_accepted / crowd.num_verified < 0.9
    assert p_value > chi_square.REJECT


def ended(draft: Draft) -> Draft:
    """A draft that ends before the first token that its draft node does not like, though it was drawn."""
    length = next((place for place, token in enumerate(draft.tokens) if token % 2), len(draft.tokens))
    proposal = positions.cut(draft.proposal or b"", length) if length else None
    return replace(draft, tokens=draft.tokens[:length], proposal=proposal)


def truncated(draft: Draft) -> Draft:
    """A draft that is sent with the likeliest tokens only, of those that each of its tokens was drawn from.

    Left in is what was drawn: a draft without that would be refused, whatever it is, and the law would stay.
    """
    probs = proposals.decode(draft.proposal or b"", len(draft.tokens), NUM_TOKENS, draft.tokens)
    is_sent = probs >= probs.topk(3).values[:, -1:]
    is_sent[torch.arange(len(draft.tokens)), torch.tensor(draft.tokens)] = True
    kept = torch.where(is_sent, probs, 0.0)
    sent = proposals.make(kept / kept.sum(1, keepdim=True), "dense-fp32")
    return replace(draft, proposal=proposals.encode(sent.pack()))


@pytest.mark.parametrize("rounds", ["barrier", pytest.param("continuous", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("spoil", [ended, truncated])
def test_a_draft_that_is_not_what_it_is_said_to_be_is_seen_in_the_law(spoil: Spoil, rounds: str) -> None:
    crowd = Crowd(rounds, kind="dense-fp32", spoil=spoil)
    p_value = crowd.p_value()
    assert len(crowd.bases) > 0.5 * NUM_SESSIONS
    assert p_value < chi_square.REJECT
