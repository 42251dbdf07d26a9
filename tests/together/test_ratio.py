"""The ratio rule through a real draft model and a real target: the law of two tokens after a draft is the target's.

The end-to-end companion of `test_rejection.py`: rounding, packing, the wire's bytes, noise, rounds and epochs included;
and what going on under match does to the law, as sessions of a client do that is found to lie.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as with_changes
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draft_node.core.actions import Action, Deliver, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.engine.base import Checkpoint
from goodspeed.exact import proposal_bytes, proposals
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.fields import Verification
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.messages import Draft, LogitRules, Sampling, UpMessage, Verdict
from tests.exact import chi_square
from tests.fakes import make_core, make_hello, make_welcome, session_id
from tests.micro import make_checkpoint, make_engine
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry

NUM_TOKENS = 8  # of the vocabulary, so that every pair is frequent; the model's other rows are padding
NUM_STREAMS = 1000
AT_ONCE = 500
LENGTH = 6
PROMPT = (3, 1, 4)
WARM = Sampling(temperature=1.0)
TARGET = make_checkpoint(1, num_tokens=NUM_TOKENS)
PLAIN = make_checkpoint(1).model  # as transformers made it
DRAFT = make_checkpoint(1, shift=0.03, num_tokens=NUM_TOKENS)
PARALLEL = with_changes(DRAFT, mask_id=60, num_parallel=8)  # drafts all tokens in one pass, without the ones before

# Looked at are the two tokens after each text for which a draft was verified, since it is these that it was about.
# Which drafts are verified, and how much of them, must depend on the text, and never on what the draft drew.

Base = tuple[int, ...]
Spoil = Callable[[Draft], Draft]


def joint(sampling: Sampling, rules: LogitRules | None, base: Base) -> torch.Tensor:
    """Probability of every pair of tokens after a base [NUM_TOKENS * NUM_TOKENS] under the target alone."""
    texts = [(*base, token) for token in range(NUM_TOKENS)]
    with torch.inference_mode():
        logits = PLAIN(torch.tensor(texts)).logits[:, -2:]  # the same in every row, and after each token
    outputs = [text[len(PROMPT) :] for text in (base, *texts)]
    counts = TextCounts.of(PROMPT, ())
    rows = [TextRows([output], rules, sampling.temperature, counts=counts) for output in outputs]
    logits = process(torch.cat([logits[:1, 0], logits[:, 1]]), rows, num_tokens=NUM_TOKENS)
    probs = to_probs(logits, SamplingBatch.of([sampling] * len(rows)), num_tokens=NUM_TOKENS).double()[:, :NUM_TOKENS]
    return (probs[0, :, None] * probs[1:]).flatten()


class Knowing:
    """An n-gram index that is sure of two tokens after some texts, and knows nothing of others."""

    def draft(self, tokens: Sequence[int], length: int, least_probability: float) -> Continuation:
        if tokens[-1] % 2:
            return Continuation()
        return Continuation((tokens[-1], 1)[:length], (0.9, 0.9)[:length])


class Crowd:
    """Many sessions, each of a client of its own, at one verify node and one draft model, without a wire."""

    def __init__(
        self,
        rounds: str = "barrier",
        *,
        kind: str = "lattice",
        model: Checkpoint = DRAFT,
        sampling: Sampling = WARM,
        rules: LogitRules | None = None,
        spoil: Spoil | None = None,
        knows: bool = False,
        rule: Callable[[Base], Verification] = lambda before: "ratio",
    ) -> None:
        """spoil: what becomes of drafts on their way. knows: an index drafts, too.

        rule: by which a session's draft is verified; before: the draft before it.
        """
        self.target = Target(TARGET, make_engine(TARGET, num_pages=4096))
        self.drafter = Drafter(model, make_engine(model, num_pages=4096), kind=kind, k=5)
        self.rounds, self.spoil, self.knows, self.rule = rounds, spoil, knows, rule
        self.sampling, self.rules = sampling, rules
        self.sessions: dict[bytes, Session] = {}
        self.before: dict[bytes, Base] = {}
        self.bases: list[tuple[bytes, Base]] = []  # session, and the text that its draft was verified after
        self.num_verified = self.num_accepted = 0
        self.sources: Counter[str | None] = Counter()
        self.num_by_rule: Counter[str] = Counter()
        texts: dict[bytes, Base] = {}
        for first in range(0, NUM_STREAMS, AT_ONCE):
            texts |= self._some(first)
        found = [(base, texts[key][len(base) :][:2]) for key, base in self.bases]
        self.found = [(base, after) for base, after in found if len(after) == 2]

    def p_value(self, rules: LogitRules | None = None) -> float:
        """The p-value of the two tokens after every text for which a draft was verified; rules: others than its own."""
        counts = Counter(base for base, _ in self.found)
        laws = [count * joint(self.sampling, rules or self.rules, base) for base, count in counts.items()]
        pairs = torch.tensor([after for _, after in self.found])
        return chi_square.fits(pairs[:, 0] * NUM_TOKENS + pairs[:, 1], torch.stack(laws).sum(0) / len(pairs))

    def check(self) -> None:
        """The target's law, by enough drafts of which some were accepted."""
        assert len(self.bases) > NUM_STREAMS  # more than one draft of each: the noise of a round is not another's
        assert 0.1 < self.num_accepted / self.num_verified < 0.9  # else little was tested
        assert self.p_value() > chi_square.REJECT

    def _some(self, first: int) -> dict[bytes, Base]:
        requests = [self._request(seed) for seed in range(first, first + AT_ONCE)]
        ngrams = Knowing() if self.knows else None
        self.sessions = {each.session_id: Session(each, ngrams) for each in requests}  # type: ignore[arg-type]
        room: Any = {"budget": 3 * AT_ONCE, "max_round_tokens": 1 << 16, "max_sessions": AT_ONCE}
        room |= {"pool": self.target.engine.pool, "vocab_size": NUM_TOKENS}
        # To validate is to look at all sessions after each message, which takes minutes with 500 of them.
        self.core = make_core(rounds=self.rounds, policy="fixed", validates=False, **room)
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

    def _request(self, seed: int) -> Generation:
        asked = session_id(seed), PROMPT, replace(self.sampling, seed=seed), LENGTH
        return Generation(*asked, verification="ratio", logit_rules=self.rules)

    def _round(self) -> None:
        planned = self.core.plan(0.0)
        assert planned is not None
        drafted = [entry.session_id for entry in planned.entries if entry.num_drafted]
        self.bases += [(key, tuple(self.core.sessions[key].tokens)) for key in drafted]
        result = self.target.run(replace(planned, entries=tuple(map(self._ruled, planned.entries))))
        assert not any(outcome.invalid for outcome in result.outcomes)
        for send in self.core.rounds.finish(result.outcomes, 0.01, 0.0):
            verdict = send.message
            assert isinstance(verdict, Verdict)
            self.num_verified += verdict.num_verified
            self.num_accepted += verdict.num_accepted
            self.sources[verdict.source] += 1
            self._act(verdict.session_id, self.sessions[verdict.session_id].receive(verdict, 0.0))

    def _ruled(self, entry: Entry) -> Entry:
        if not entry.num_drafted:
            return entry
        rule = self.rule(self.before.get(entry.session_id, ()))
        self.before[entry.session_id] = entry.tokens[-entry.num_drafted :]
        self.num_by_rule[rule] += 1
        return replace(entry, verification=rule)

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


@pytest.mark.parametrize(
    ("rounds", "kind", "model", "temperature"),
    [
        ("continuous", "lattice", DRAFT, 1.0),
        ("barrier", "lattice", PARALLEL, 0.7),
        ("barrier", "dense-fp16", DRAFT, 0.7),
        pytest.param("barrier", "lattice", DRAFT, 1.0, marks=pytest.mark.thorough),
        pytest.param("continuous", "dense-fp32", DRAFT, 1.0, marks=pytest.mark.thorough),
        pytest.param("continuous", "dense-fp32", PARALLEL, 1.0, marks=pytest.mark.thorough),
    ],
)
def test_what_follows_a_draft_has_the_targets_law(rounds, kind, model, temperature) -> None:
    crowd = Crowd(rounds, kind=kind, model=model, sampling=Sampling(temperature=temperature))
    crowd.check()
    assert set(crowd.sources) == {"model", None}


@pytest.mark.thorough
def test_rules_for_logits_change_the_law_of_both_and_it_is_still_the_targets() -> None:
    """The second token's depends on the first one, drafted or not; without that the law would be another."""
    rules = LogitRules(presence_penalty=1.0, repetition_penalty=1.3, min_p=0.02, logit_bias=(TokenBias(5, 1.0),))
    crowd = Crowd(rules=rules, sampling=Sampling(temperature=0.8))
    crowd.check()
    assert crowd.p_value(replace(rules, presence_penalty=0.0)) < chi_square.REJECT


@pytest.mark.thorough
def test_going_on_under_match_keeps_the_targets_law() -> None:
    """This holds where the rule hangs on drafts verified before, too: the next draft and match's noise know nothing."""
    crowd = Crowd(rule=lambda before: "match" if before and before[0] % 2 else "ratio")
    crowd.check()
    assert min(crowd.num_by_rule.values()) > 300


@pytest.mark.thorough
def test_tokens_of_an_index_are_certain_and_leave_the_law_as_it_is() -> None:
    crowd = Crowd("continuous", knows=True)
    crowd.check()
    assert min(crowd.sources["model"], crowd.sources["ngram"]) > 0.3 * NUM_STREAMS


def ended(draft: Draft) -> Draft:
    """A draft that ends before the first token that its draft node does not like, though it was drawn."""
    length = next((place for place, token in enumerate(draft.tokens) if token % 2), len(draft.tokens))
    proposal = proposal_bytes.cut(draft.proposal or b"", length) if length else None
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
    return replace(draft, proposal=b"".join(sent.pack()))


@pytest.mark.parametrize("rounds", ["barrier", pytest.param("continuous", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("spoil", [ended, truncated])
def test_a_draft_that_is_not_what_it_is_said_to_be_is_seen_in_the_law(spoil: Spoil, rounds: str) -> None:
    crowd = Crowd(rounds, kind="dense-fp32", spoil=spoil)
    assert len(crowd.bases) > 0.5 * NUM_STREAMS
    assert crowd.p_value() < chi_square.REJECT
