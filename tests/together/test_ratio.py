"""The ratio rule through a real draft model and a real target: the joint law of the first two tokens is the target's.

The end-to-end companion of `test_rejection.py`: rounding, packing, the wire's bytes, noise, rounds and epochs included;
and what going on under match does to the law, as sessions of a client do that is found to lie.
"""

from collections import Counter
from dataclasses import replace as with_changes

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draft_node.core.generation import Generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.exact import proposals
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.generation import TokenBias
from goodspeed.wire.messages import LogitRules, Sampling
from tests.exact import chi_square
from tests.fakes import session_id
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


def joint(sampling, rules=None, prompt=PROMPT, base=PROMPT):
    """Probability of every pair of tokens after a base [NUM_TOKENS * NUM_TOKENS] under the target alone."""
    texts = [(*base, token) for token in range(NUM_TOKENS)]
    with torch.inference_mode():
        logits = PLAIN(torch.tensor(texts)).logits[:, -2:]  # the same in every row, and after each token
    outputs = [text[len(prompt) :] for text in (base, *texts)]
    rows = [TextRows([output], rules, sampling.temperature, prompt) for output in outputs]
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
                self.target.runner.free(session_id(seed))
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
            self.target.runner.free(session_id(seed))
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
