"""The ratio rule through a real draft model and a real target: the joint law of the first two tokens is the target's.

The end-to-end companion of `test_rejection.py`: rounding, packing, the wire's bytes, noise, rounds and epochs included;
and what going on under match does to the law, as sessions of a client do that is found to lie.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as with_changes

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draft_node.core.actions import Action, Deliver, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.exact import proposal_bytes, proposals
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.messages import Draft, LogitRules, Sampling, UpMessage, Verdict
from tests.exact import chi_square
from tests.fakes import make_core, make_hello, make_welcome, session_id
from tests.micro import make_checkpoint, make_runner
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry, Round

NUM_TOKENS = 8  # of the vocabulary, so that every pair is frequent; the model's other rows are padding
NUM_SESSIONS = 4000
AT_ONCE = 500
PROMPT = (3, 1, 4)
TARGET = make_checkpoint(1, num_tokens=NUM_TOKENS)
PLAIN = make_checkpoint(1).model  # as transformers made it
DRAFT = make_checkpoint(1, shift=0.1, num_tokens=NUM_TOKENS)
PARALLEL = with_changes(
    DRAFT, mask_id=60, num_parallel=8
)  # drafts both tokens in one pass, the second without the first


def joint(sampling, rules=None, base=PROMPT):
    """Probability of every pair of tokens after a base [NUM_TOKENS * NUM_TOKENS] under the target alone."""
    texts = [(*base, token) for token in range(NUM_TOKENS)]
    with torch.inference_mode():
        logits = PLAIN(torch.tensor(texts)).logits[:, -2:]  # the same in every row, and after each token
    outputs = [text[len(PROMPT) :] for text in (base, *texts)]
    rows = [TextRows([output], rules, sampling.temperature, PROMPT) for output in outputs]
    logits = process(torch.cat([logits[:1, 0], logits[:, 1]]), rows, num_tokens=NUM_TOKENS)
    probs = to_probs(logits, SamplingBatch.of([sampling] * len(rows)), num_tokens=NUM_TOKENS).double()[:, :NUM_TOKENS]
    return (probs[0, :, None] * probs[1:]).flatten()


class Pairs:
    """Many sessions that want two tokens each, a draft of two at first and of one where the first was rejected."""

    def __init__(self, sampling, kind, spoil=None, rule=lambda before, draft: "ratio", logit_rules=None, model=DRAFT):
        """rule: by which a draft is verified; before: the tokens of the draft before it, if there was one."""
        self.target = Target(TARGET, make_runner(TARGET, num_pages=4096))
        self.drafter = Drafter(model, make_runner(model, num_pages=4096), kind=kind, k=5)
        self.sampling, self.spoil, self.rule, self.logit_rules = sampling, spoil, rule, logit_rules
        self.before = {}
        self.num_accepted = 0
        self.num_rounds_by: Counter[str] = Counter()

    def run(self):
        pairs = []
        for first in range(0, NUM_SESSIONS, AT_ONCE):
            texts = dict.fromkeys(range(first, first + AT_ONCE), ())
            for number in (1, 2):
                self.round(number, texts)
            pairs += [text[:2] for text in texts.values()]
            for seed in texts:
                self.drafter.forget(session_id(seed))
                self.target.runner.pool.free(session_id(seed))
        return torch.tensor(pairs)  # [NUM_SESSIONS, 2]

    def round(self, number, texts):
        wanting = {seed: text for seed, text in texts.items() if len(text) < 2}
        drafts = self.draft(number, wanting)
        entries = []
        for seed, text in wanting.items():
            proposed = drafts[session_id(seed)]
            rule = self.rule(self.before.get(seed), proposed.tokens)
            self.before[seed] = proposed.tokens
            self.num_rounds_by[rule] += 1
            self.target.runner.pool.free(session_id(seed))
            entries.append(
                Entry(
                    session_id(seed),
                    0,
                    (*PROMPT, *text, *proposed.tokens),
                    len(proposed.tokens),
                    True,
                    replace(self.sampling, seed=seed),
                    rule,
                    epoch=1,
                    proposal=self.spoil(proposed) if self.spoil else proposed.proposal,
                    rules=self.logit_rules,
                    prompt_len=len(PROMPT),
                    text=(*PROMPT, *text),
                )
            )
        for outcome in self.target.run(Round(number, tuple(entries))).outcomes:
            assert not outcome.invalid
            self.num_accepted += outcome.num_accepted
            texts[int.from_bytes(outcome.session_id, "big")] += outcome.tokens

    def draft(self, number, wanting):
        for seed, text in wanting.items():
            sampling = replace(self.sampling, seed=seed)
            request = Generation(
                session_id(seed), PROMPT, sampling, 100, verification="ratio", logit_rules=self.logit_rules
            )
            self.drafter.add(Propose(request, 1, number, (*PROMPT, *text), 2 - len(text)))
        drafts: dict[bytes, Proposed] = {}
        while self.drafter.busy:
            drafts |= {proposed.session_id: proposed for proposed in self.drafter.step()}
        return drafts


def p_value(pairs, sampling, rules=None):
    return chi_square.fits(pairs[:, 0] * NUM_TOKENS + pairs[:, 1], joint(sampling, rules))


@pytest.mark.parametrize("model", [DRAFT, PARALLEL], ids=["one a pass", "in one pass"])
@pytest.mark.parametrize(
    ("kind", "temperature"), [("lattice", 0.7), ("lattice", 1.0), ("dense-fp16", 0.7), ("dense-fp32", 1.0)]
)
def test_the_first_two_tokens_have_the_targets_law(kind, temperature, model):
    sampling = Sampling(temperature=temperature)
    world = Pairs(sampling, kind, model=model)
    pairs = world.run()
    assert 0.2 * NUM_SESSIONS < world.num_accepted < 1.8 * NUM_SESSIONS  # else little was tested
    assert p_value(pairs, sampling) > chi_square.REJECT


@pytest.mark.thorough
def test_rules_for_logits_change_the_law_of_both_and_it_is_still_the_targets():
    """The second token's depends on the first one, drafted or not; without that the law would be another."""
    sampling = Sampling(temperature=0.8)
    rules = LogitRules(presence_penalty=1.0, repetition_penalty=1.3, min_p=0.02, logit_bias=(TokenBias(5, 1.0),))
    world = Pairs(sampling, "lattice", logit_rules=rules)
    pairs = world.run()
    assert 0.3 * NUM_SESSIONS < world.num_accepted < 1.8 * NUM_SESSIONS
    assert p_value(pairs, sampling, rules) > chi_square.REJECT
    assert p_value(pairs, sampling, replace(rules, presence_penalty=0.0)) < chi_square.REJECT


@pytest.mark.thorough
def test_going_on_under_match_keeps_the_targets_law():
    """This holds where the rule hangs on drafts verified before, too: the next draft and match's noise know nothing."""
    sampling = Sampling(temperature=1.0)
    world = Pairs(sampling, "lattice", rule=lambda before, draft: "match" if before and before[0] % 2 else "ratio")
    pairs = world.run()
    assert min(world.num_rounds_by.values()) > 500
    assert p_value(pairs, sampling) > chi_square.REJECT


@pytest.mark.thorough
def test_going_on_under_match_because_of_the_very_draft_is_seen_in_the_law():
    """So a draft is first verified by the rule that it was made for, and only then held against its client."""
    sampling = Sampling(temperature=1.0)
    world = Pairs(sampling, "lattice", rule=lambda before, draft: "match" if draft[0] % 2 else "ratio")
    assert p_value(world.run(), sampling) < chi_square.REJECT


def flattened(proposed):
    """A lie: that every token was as likely as any other."""
    flat = proposals.make(torch.full((len(proposed.tokens), NUM_TOKENS), 1 / NUM_TOKENS), "dense-fp32")
    return proposals.encode(flat.pack())


@pytest.mark.thorough
def test_a_lie_about_what_was_sampled_from_is_seen_in_the_law():
    sampling = Sampling(temperature=1.0)
    assert p_value(Pairs(sampling, "dense-fp32", flattened).run(), sampling) < chi_square.REJECT


def test_the_law_is_the_targets_and_not_the_drafts():
    """The draft alone would fail, so the models differ enough for the test to mean something."""
    sampling = Sampling(temperature=1.0)
    world = Pairs(sampling, "dense-fp32")
    drafts = world.draft(1, dict.fromkeys(range(2000), ()))
    pairs = torch.from_numpy(np.array([proposed.tokens for proposed in drafts.values()]))
    assert p_value(pairs, sampling) < chi_square.REJECT


# -- the stream of drafts: both nodes' state machines and real models, and still the target's law ----------------------


NUM_STREAMS = 1000
LENGTH = 6
TEMPERATURE = 1.0
NEAR_DRAFT = make_checkpoint(1, shift=0.03, num_tokens=NUM_TOKENS)


# Looked at are the two tokens after each text for which a draft was verified, since it is these that it was about.
# Which drafts are verified, and how much of them, must depend on the text, and never on what the draft drew.

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
        self.drafter = Drafter(NEAR_DRAFT, make_runner(NEAR_DRAFT, num_pages=4096), kind=kind, k=5)
        self.rounds, self.spoil, self.knows = rounds, spoil, knows
        self.sessions: dict[bytes, Session] = {}
        self.bases: list[tuple[bytes, Base]] = []  # session, and the text that its draft was verified after
        self.num_verified = self.num_accepted = 0
        self.sources: Counter[str | None] = Counter()

    def p_value(self) -> float:
        """The p-value of the two tokens after every text for which a draft was verified."""
        texts: dict[bytes, Base] = {}
        for first in range(0, NUM_STREAMS, AT_ONCE):
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
    assert len(crowd.bases) > NUM_STREAMS  # more than one draft of each: the noise of a round is not another's
    assert 0.1 < crowd.num_accepted / crowd.num_verified < 0.9  # else little was tested
    assert set(crowd.sources) == {"model", None}
    assert p_value > chi_square.REJECT


@pytest.mark.thorough
def test_tokens_of_an_index_are_certain_and_leave_the_law_as_it_is() -> None:
    crowd = Crowd("continuous", knows=True)
    p_value = crowd.p_value()
    assert min(crowd.sources["model"], crowd.sources["ngram"]) > 0.3 * NUM_STREAMS
    assert 0.1 < crowd.num_accepted / crowd.num_verified < 0.9
    assert p_value > chi_square.REJECT


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
    return replace(draft, proposal=proposals.encode(sent.pack()))


@pytest.mark.parametrize("rounds", ["barrier", pytest.param("continuous", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("spoil", [ended, truncated])
def test_a_draft_that_is_not_what_it_is_said_to_be_is_seen_in_the_law(spoil: Spoil, rounds: str) -> None:
    crowd = Crowd(rounds, kind="dense-fp32", spoil=spoil)
    p_value = crowd.p_value()
    assert len(crowd.bases) > 0.5 * NUM_STREAMS
    assert p_value < chi_square.REJECT
