"""The draft model: whatever its cache went through, it proposes what a fresh one would."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from msgspec.structs import astuple, replace

from draft_node.core.generation import Generation
from goodspeed.app import reference
from goodspeed.drafting.confidence import AT_NO_CONFIDENCE, BEHIND_MASKS, acceptance_probabilities
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.step_size import Widths
from goodspeed.drafting.tree import ALTERNATIVES, LEAST, Nodes, Tree
from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import try_model
from goodspeed.exact import proposals, trees
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.noise import match_noise
from goodspeed.exact.proposal_bytes import spans
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias
from tests import gguf_files
from tests.engine import gguf_models
from tests.exact.rounded import rounded
from tests.fakes import session_id
from tests.micro import VOCAB, make_checkpoint, make_engine

CHECKPOINT = make_checkpoint(1)
SAMPLINGS = [Sampling(temperature=0.0), Sampling(seed=3), Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=4)]
RULES = [None, LogitRules(1.5, 0.5, 1.5, 0.01, (TokenBias(9, 2.0),))]


class Fixed(Widths):
    """The same width, whatever the time."""

    def choose(self, jobs: Sequence[Sequence[float]]) -> int:
        return self.max_width


def make_drafter(num_pages=256, width=8, **options):
    drafter = Drafter(CHECKPOINT, make_engine(CHECKPOINT, num_pages), **options)
    drafter.widths = Fixed(width)
    return drafter


class Chains(TorchEngine):
    """An engine that computes no trees: it refuses them, and keeps nothing that would have to move."""

    has_trees = False

    def forward(self, chunks):
        assert all(chunk.parents is None for chunk in chunks)
        return super().forward(chunks)

    def keep(self, paths):
        assert all(path.is_first for path in paths)
        super().keep(paths)


def make_request(number=1, **changes):
    request = Generation(session_id(number), (5, 6, 7, 8, 9), Sampling(seed=number), max_tokens=100)
    return replace(request, **changes)


def wanted(request, tokens, length, round=1):
    return Propose(request, 1, round, tuple(tokens), length)


def run(drafter, *proposes):
    """All of them at once; what came of each."""
    for propose in proposes:
        drafter.add(propose)
    done: dict[bytes, Proposed] = {}
    while drafter.busy:
        done |= {proposed.session_id: proposed for proposed in drafter.step()}
    return [done[propose.request.session_id] for propose in proposes]


def fresh(propose, **options):
    [proposed] = run(make_drafter(**options), propose)
    return proposed.tokens


def verdict(rng, base, drafted):
    """The next base: some of the draft accepted, then a token of the target's; now and then many of them."""
    accepted = drafted[: rng.randint(0, len(drafted))]
    return [*base, *accepted, *(rng.randrange(VOCAB) for _ in range(rng.choice([1, 1, 1, 6])))]


@pytest.mark.parametrize("rules", RULES, ids=["plain", "ruled"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_drafts_what_the_model_alone_would_write(sampling, rules):
    """Same noise, same model, same rules: then every token would be accepted."""
    request = make_request(sampling=sampling, logit_rules=rules)
    engine = make_engine(CHECKPOINT)
    alone = list(reference.generate(CHECKPOINT, engine, request.prompt, sampling, 12, rules=rules))
    assert fresh(wanted(request, request.prompt, 12)) == tuple(alone)


@pytest.mark.parametrize("num_pages", [256, 20])  # 20: less than they need together, so caches are made again
def test_sessions_in_one_step_propose_what_each_would_alone(num_pages):
    rng = random.Random(8)
    drafter = make_drafter(num_pages)
    requests = [
        make_request(
            number,
            prompt=tuple(rng.randrange(VOCAB) for _ in range(rng.randint(1, 20))),
            verification=rng.choice(["match", "ratio"]),
            sampling=rng.choice(SAMPLINGS),
            logit_rules=rng.choice(RULES),
        )
        for number in range(6)
    ]
    bases = [list(request.prompt) for request in requests]
    for number in range(8):
        chosen = rng.sample(range(6), 2 if num_pages == 20 else rng.randint(1, 6))
        proposes = [wanted(requests[i], bases[i], rng.choice([0, 2, 5]), number) for i in chosen]
        for i, propose, proposed in zip(chosen, proposes, run(drafter, *proposes), strict=True):
            assert (proposed.epoch, proposed.round) == (1, number)
            assert proposed.tokens == fresh(propose)
            assert len(proposed.tokens) == propose.length
            bases[i] = verdict(rng, bases[i], proposed.tokens)


def record_passes(drafter, monkeypatch):
    """The chunks of every forward pass from now on."""
    fed = []
    forward = drafter.engine.forward

    def recorded(chunks):
        fed.append(chunks)
        return forward(chunks)

    monkeypatch.setattr(drafter.engine, "forward", recorded)
    return fed


def test_what_is_cached_is_not_fed_again(monkeypatch):
    drafter = make_drafter()
    fed = record_passes(drafter, monkeypatch)
    request = make_request()
    [proposed] = run(drafter, wanted(request, request.prompt, 4))
    assert [len(chunk.tokens) for chunks in fed for chunk in chunks] == [5, 1, 1, 1]
    fed.clear()
    base = [*request.prompt, *proposed.tokens, 1]  # all accepted: the last one was never fed, nor the bonus
    run(drafter, wanted(request, base, 1))
    assert [len(chunk.tokens) for chunks in fed for chunk in chunks] == [2]


def passes_of(drafter, monkeypatch, *proposes):
    """The chunks of all passes for these proposals, each of which gets what it would alone."""
    fed = record_passes(drafter, monkeypatch)
    assert [proposed.tokens for proposed in run(drafter, *proposes)] == [fresh(propose) for propose in proposes]
    return fed


def test_prefill_and_drafting_share_forward_passes(monkeypatch):
    monkeypatch.setattr("goodspeed.drafting.caches.PREFILL_CHUNK", 8)
    long, short = make_request(1, prompt=tuple(range(20))), make_request(2)
    fed = passes_of(make_drafter(), monkeypatch, wanted(long, long.prompt, 2), wanted(short, short.prompt, 3))
    assert [[len(chunk.tokens) for chunk in chunks] for chunks in fed] == [[8, 5], [8, 1], [4, 1], [1]]
    assert [[chunk.num_logits for chunk in chunks] for chunks in fed] == [[0, 1], [0, 1], [1, 1], [1]]


def test_a_long_prompt_is_prefilled_slowly_only_beside_others(monkeypatch):
    drafter = make_drafter()
    drafter.prefill_rows.most, drafter.prefill_rows.alone = 4, 256
    monkeypatch.setattr(drafter.prefill_rows, "observe", lambda num_prefill, seconds: None)
    long = [make_request(number, prompt=tuple(range(number, number + 50))) for number in (1, 2)]
    proposes = wanted(make_request(3), make_request(3).prompt, 2), *(wanted(one, one.prompt, 1) for one in long)
    fed = passes_of(drafter, monkeypatch, *proposes)
    assert [[len(chunk.tokens) for chunk in chunks] for chunks in fed] == [[5, 4], [1, 4], [42, 50]]


def test_prompts_alone_are_prefilled_in_steps_that_last_about_a_second(monkeypatch):
    drafter = make_drafter()
    drafter.prefill_rows.alone = 20
    taken: list[int] = []
    monkeypatch.setattr(drafter.prefill_rows, "observe_alone", lambda num_prefill, seconds: taken.append(num_prefill))
    requests = [make_request(number, prompt=tuple(range(number, number + 40))) for number in (1, 2)]
    fed = passes_of(drafter, monkeypatch, *(wanted(one, one.prompt, 1) for one in requests))
    assert [[len(chunk.tokens) for chunk in chunks] for chunks in fed] == [[20]] * 4
    assert taken == [20] * 4


def test_prompts_wait_in_a_step_that_prefills_nothing(monkeypatch):
    drafter = make_drafter()
    rooms = [0, 20, 0]
    monkeypatch.setattr(drafter.prefill_rows, "choose", lambda: rooms.pop(0))
    long, short = make_request(1, prompt=tuple(range(50))), make_request(2)
    fed = passes_of(drafter, monkeypatch, wanted(long, long.prompt, 1), wanted(short, short.prompt, 3))
    assert [[len(chunk.tokens) for chunk in chunks] for chunks in fed] == [[5], [20, 1], [1], [30]]


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_verdict_in_the_middle_leaves_no_trace_of_what_was_being_drafted(verification):
    request = make_request(verification=verification)
    drafter = make_drafter()
    for num_steps in range(1, 6):
        drafter.add(wanted(request, request.prompt, 6, round=2 * num_steps))
        for _ in range(num_steps):
            drafter.step()
        right = drafter._jobs[request.session_id].tree.tokens[:2]
        again = wanted(request, (*request.prompt, *right), 3, round=2 * num_steps + 1)
        assert run(drafter, again)[0].tokens == fresh(again)


def test_memory_is_taken_from_idle_sessions_and_from_no_other():
    drafter = make_drafter(num_pages=4)
    first, second = make_request(1), make_request(2)
    run(drafter, wanted(first, first.prompt, 3))  # idle now, with two of the four pages of four tokens
    [proposed] = run(drafter, wanted(second, (1,) * 12, 3))
    assert proposed.tokens == fresh(wanted(second, (1,) * 12, 3))
    assert first.session_id not in drafter.engine.pool
    drafter.add(wanted(second, (1,) * 12, 4))
    drafter.step()
    [none, drafted] = run(drafter, wanted(first, (*first.prompt, *(4,) * 6), 3), wanted(second, (1,) * 12, 3))
    assert (none.tokens, drafted.tokens) == ((), fresh(wanted(second, (1,) * 12, 3)))


def test_it_stops_after_a_stop_token():
    request = make_request()
    tokens = fresh(wanted(request, request.prompt, 8))
    stopping = replace(request, stop_ids=(tokens[2],))
    end = tokens.index(tokens[2])
    assert fresh(wanted(stopping, request.prompt, 8)) == tokens[: end + 1]


def test_probabilities_of_acceptance_by_the_models_confidence_by_hand():
    probs = torch.tensor([[0.5, 0.25, 0.25], [1.0, 1e-30, 1e-30]])
    found = acceptance_probabilities(probs, torch.tensor([0, 2])).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, AT_NO_CONFIDENCE])
    found = acceptance_probabilities(probs, torch.tensor([0, 2]), [False, True]).tolist()
    assert found == pytest.approx([AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * 0.5, BEHIND_MASKS])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_with_the_token_that_spends_the_probability(temperature):
    request = make_request(sampling=Sampling(temperature, seed=3))
    [whole] = run(make_drafter(), wanted(request, request.prompt, 12))
    with torch.inference_mode():
        logits = make_checkpoint(1).model(torch.tensor([[*request.prompt, *whole.tokens]])).logits[0, -13:-1]
    confident = logits.softmax(-1)[torch.arange(12), torch.tensor(whole.tokens)].tolist()
    claimed = [AT_NO_CONFIDENCE + (1 - AT_NO_CONFIDENCE) * each for each in confident]
    assert whole.probabilities == pytest.approx(claimed, rel=1e-4)
    short = fresh(replace(wanted(request, request.prompt, 12), least_probability=0.3))
    assert short == whole.tokens[: len(short)]
    assert math.prod(claimed[: len(short)]) < 0.3 <= math.prod(claimed[: len(short) - 1])


def test_under_ratio_no_token_makes_a_draft_shorter():
    request = make_request(verification="ratio")
    [proposed] = run(make_drafter(), replace(wanted(request, request.prompt, 8), least_probability=0.9))
    assert (len(proposed.tokens), proposed.probabilities) == (8, None)
    assert fresh(wanted(replace(request, stop_ids=(proposed.tokens[2],)), request.prompt, 8)) == proposed.tokens


def test_the_end_of_the_context_shortens_a_proposal():
    request = make_request(prompt=(1,) * 125)
    assert len(fresh(wanted(request, request.prompt, 8))) == 4  # fed 125, 126, 127 and 128 tokens
    full = make_request(prompt=(1,) * 129)
    assert fresh(wanted(full, full.prompt, 8)) == ()


def test_those_who_fit_are_not_disturbed_by_one_who_does_not():
    drafter = make_drafter(num_pages=4)
    long, short = make_request(1, prompt=(1,) * 30), make_request(2)
    [none, some] = run(drafter, wanted(long, long.prompt, 3), wanted(short, short.prompt, 3))
    assert none.tokens == ()
    assert some.tokens == fresh(wanted(short, short.prompt, 3))


def test_forgotten_sessions_leave_no_memory():
    drafter = make_drafter()
    for number in range(3):
        request = make_request(number)
        run(drafter, wanted(request, request.prompt, 3))
        drafter.forget(request.session_id)
        drafter.forget(request.session_id)
    assert drafter.engine.pool.num_free == drafter.engine.pool.num_pages


def test_when_the_model_fails_everybody_goes_on_without_drafts():
    drafter = make_drafter()
    requests = [make_request(number) for number in (1, 2)]
    for request in requests:
        drafter.add(wanted(request, request.prompt, 5))
    drafter.step()
    given_up = drafter.abandon()
    assert {(each.session_id, each.tokens) for each in given_up} == {(each.session_id, ()) for each in requests}
    assert not drafter.busy
    assert drafter.engine.pool.num_free == drafter.engine.pool.num_pages
    again = wanted(requests[0], requests[0].prompt, 5)
    assert run(drafter, again)[0].tokens == fresh(again)


# -- ratio -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", proposals.KINDS)
def test_what_is_sent_is_what_was_sampled_from(kind):
    sampling = Sampling(temperature=0.7, seed=2)
    request = make_request(verification="ratio", sampling=sampling)
    [proposed] = run(make_drafter(kind=kind, k=16), wanted(request, request.prompt, 4))
    sent = proposals.decode(proposed.proposal, 4, VOCAB, proposed.tokens)  # refuses a token of probability zero
    for position, probs in enumerate(sent):
        base = [*request.prompt, *proposed.tokens[:position]]
        with torch.inference_mode():
            logits = make_checkpoint(1).model(torch.tensor([base])).logits[0, -1:]
        made = proposals.make(to_probs(logits, SamplingBatch.of([sampling])), kind, k=16)
        assert torch.allclose(probs, rounded(made)[0], atol=1e-4)
        assert int((probs > 0).sum()) <= (16 if kind == "lattice" else VOCAB)


@pytest.mark.parametrize("kind", proposals.KINDS)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_under_ratio_a_proposal_ends_where_the_model_computes_no_probabilities(kind, wrong, monkeypatch):
    """The verify node would count such numbers as an offence of the draft node."""
    drafter = make_drafter(kind=kind)
    fed = record_passes(drafter, monkeypatch)
    forward = drafter.engine.forward

    def broken(chunks):
        logits = forward(chunks)
        if len(fed) > 2:
            logits[:, 3] = wrong
        return logits

    monkeypatch.setattr(drafter.engine, "forward", broken)
    request = make_request(verification="ratio")
    [proposed] = run(drafter, wanted(request, request.prompt, 5))
    assert len(proposed.tokens) == 2
    assert len(proposals.decode(proposed.proposal, 2, VOCAB, proposed.tokens)) == 2


@pytest.mark.parametrize(("room", "longest"), [(3.5, 3), (1, 1), (0.5, 0)])
def test_proposals_fit_into_a_message(room, longest):
    drafter = make_drafter(kind="dense-fp32")
    drafter.max_proposal_bytes = int(room * proposals.position_bytes("dense-fp32", VOCAB))
    request = make_request(verification="ratio")
    [proposed] = run(drafter, wanted(request, request.prompt, 5))
    assert len(proposed.tokens) == longest
    assert len(proposed.proposal or b"") <= drafter.max_proposal_bytes


# -- alternatives ------------------------------------------------------------------------------------------------------


NOTHING = Nodes()


def ranked(request, texts, rules=None):
    """The draft model's tokens after each text, the likeliest over the noise of its position first, by hand."""
    with torch.inference_mode():
        chunks = [Chunk(session_id(number), tokens, 1) for number, tokens in enumerate(texts)]
        logits = make_engine(CHECKPOINT, num_pages=8192).forward(chunks)
        if rules is not None:
            num, temperature = len(request.prompt), request.sampling.temperature
            counts = [TextCounts.of(tokens[:num], tokens[num:]) for tokens in texts]
            logits = process(logits, [TextRows(rules=rules, temperature=temperature, counts=each) for each in counts])
    sampling = request.sampling
    noise = match_noise(torch.tensor([sampling.seed]), torch.tensor([len(tokens) for tokens in texts]), VOCAB)
    first = (to_probs(logits, SamplingBatch.of([sampling] * len(texts))) / noise).argmax(-1, keepdim=True).tolist()
    scores = logits if sampling.temperature == 0 else (logits / sampling.temperature).softmax(-1) / noise
    orders = scores.argsort(descending=True).tolist()
    return [[*one, *(token for token in order if token not in one)] for one, order in zip(first, orders, strict=True)]


def branching(request, length=4, tree=NOTHING, **changes):
    return replace(wanted(request, request.prompt, length), wants_alternatives=True, tree=tree, **changes)


def nodes_of(proposed):
    return Nodes(proposed.tokens, proposed.probabilities or (), proposed.parents or ())


@pytest.mark.parametrize("sampling", SAMPLINGS[:2], ids=["greedy", "drawn"])
def test_every_node_is_what_the_model_draws_after_its_own_path(sampling):
    """Siblings are its best tokens over the same noise, in order; branches see nothing of each other."""
    request = make_request(sampling=sampling)
    drafter = make_drafter()
    known = NOTHING
    for _ in range(3):
        new = nodes_of(run(drafter, branching(request, tree=known))[0])
        known = Nodes(*(old + more for old, more in zip(astuple(known), astuple(new), strict=True)))
    for parent in {*known.parents}:
        path = [known.tokens[node] for node in Tree.of(known).path(parent)]
        siblings = [token for token, above in zip(known.tokens, known.parents, strict=True) if above == parent]
        assert siblings == ranked(request, [[*request.prompt, *path]])[0][: len(siblings)]
    behind = {known.parents[node] for node in range(len(known.tokens))} - {-1, *trees.first_choices(known.parents)}
    assert behind, "something is drafted behind alternatives"
    assert max(Tree.of(known).depths) > 4, "and the likeliest continuation goes on meanwhile"


def test_what_a_replaced_proposal_drafted_behind_a_branch_is_not_drafted_again(monkeypatch):
    request = make_request()
    drafter = make_drafter()
    known = nodes_of(run(drafter, branching(request, length=1))[0])
    drafter.add(branching(request, tree=known))
    for _ in range(3):
        drafter.step()
    fed = record_passes(drafter, monkeypatch)
    propose = replace(branching(request, length=1), tokens=(*request.prompt, known.tokens[1]), round=9)
    new = nodes_of(run(drafter, propose)[0])
    assert len(fed) == 1
    assert max(Tree.of(new).depths) > 1, "of a single step it would be 1"


def test_alternatives_are_claimed_by_the_doubt_in_the_first_choice():
    nodes = nodes_of(run(make_drafter(), branching(make_request(), length=1))[0])
    first = nodes.probabilities[0]
    assert nodes.parents == (-1,) * len(nodes.tokens)
    claimed = [min(first, share * (1 - first)) for share in ALTERNATIVES]
    assert nodes.probabilities[1:] == pytest.approx([each for each in claimed if each >= LEAST])
    behind = Tree.of(Nodes((7,), (0.1,), (-1,))).others(0, 0.5)
    assert behind == [0.2, 0.085], "0.1 times 0.2 is likely enough, and what may be near to the text some day is kept"


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_model_on_openvino_drafts_what_it_drafts_on_torch(verification):
    checkpoints = engines.load("tiny-draft-s"), engines.load(gguf_files.made("tiny-draft-s"), dtype="float32")
    here, there = (Drafter(each, engines.start(each, num_pages=64), max_width=1) for each in checkpoints)
    prompt = tuple(range(40, 80))
    changes = {"prompt": prompt, "verification": verification}
    requests = [make_request(number, sampling=sampling, **changes) for number, sampling in enumerate(SAMPLINGS)]
    proposes = [replace(wanted(each, prompt, 6), wants_alternatives=verification == "match") for each in requests]
    for ours, theirs in zip(run(here, *proposes), run(there, *proposes), strict=True):
        assert (ours.tokens, ours.parents) == (theirs.tokens, theirs.parents)
        assert len(ours.tokens) >= 6
        if verification == "match":
            assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-3)
            assert len({*ours.parents}) < len(ours.tokens), "alternatives, too"


def test_where_no_alternative_is_wanted_or_rules_leave_one_token_there_is_none():
    ruled = branching(make_request(sampling=Sampling(seed=3), logit_rules=LogitRules(min_p=1.0)))
    for propose in (ruled, replace(branching(make_request()), wants_alternatives=False)):
        assert nodes_of(run(make_drafter(), propose)[0]).parents == (-1, 0, 1, 2)


@pytest.mark.parametrize("num_pages", [256, 10, None])  # 10: hardly room for branches; None: an engine without trees
@pytest.mark.parametrize("rules", RULES, ids=["plain", "ruled"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_whatever_way_the_text_takes_the_tree_goes_on_as_a_fresh_one_would(sampling, rules, num_pages):
    """The main way, a branch, out of the tree: paths are those of a drafter that was told the same tree."""
    rng = random.Random(5)
    request = make_request(sampling=sampling, logit_rules=rules)
    text, known = list(request.prompt), NOTHING
    drafter = make_drafter(num_pages or 64)
    if num_pages is None:
        drafter = Drafter(CHECKPOINT, Chains(CHECKPOINT, try_model(CHECKPOINT, is_split=False), num_pages=64))
    for number in range(14):
        propose = replace(branching(request, rng.choice([1, 3]), known), tokens=tuple(text), round=number)
        new = nodes_of(run(drafter, propose)[0])
        known = Nodes(*(old + more for old, more in zip(astuple(known), astuple(new), strict=True)))
        paths, first = trees.paths(known.tokens, known.parents), trees.first_choices(known.parents)
        paths = [path for node, path in enumerate(paths) if node in first or num_pages != 10]
        orders = ranked(request, [[*text, *path[:-1]] for path in paths], rules)
        assert all(path[-1] in order[: 1 + len(ALTERNATIVES)] for path, order in zip(paths, orders, strict=True))
        if rng.random() < 0.5:
            drafter.add(replace(propose, round=100))  # a request that the next verdict replaces
            drafter.step()
        ways = trees.paths(known.tokens, known.parents)
        way = list(rng.choice(ways)) if ways and rng.random() < 0.8 else [rng.randrange(VOCAB)]
        text, known = [*text, *way], known.after(way) or NOTHING
        known = known.likeliest(24)
    assert drafter.engine.pool.length(request.session_id) <= 128


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_draft_ends_where_nothing_may_be_drawn_and_others_go_on(verification):
    """Every token may end the text, and none of them yet."""
    stuck = make_request(1, stop_ids=tuple(range(VOCAB)), min_tokens=2, verification=verification)
    other = make_request(2, verification=verification)
    nothing, drafted = run(make_drafter(), wanted(stuck, stuck.prompt, 3), wanted(other, other.prompt, 3))
    assert (nothing.tokens, nothing.proposal) == ((), None)
    assert drafted.tokens == fresh(wanted(other, other.prompt, 3))


def test_the_context_is_the_models_or_what_fits_into_the_memory():
    small = make_drafter(num_pages=3)
    assert small.context_len == 3 * small.engine.pool.page_size < CHECKPOINT.context_len
    assert make_drafter(num_pages=4096).context_len == CHECKPOINT.context_len


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_no_token_that_the_target_lacks_is_drafted(verification):
    drafter = make_drafter(kind="dense-fp32")
    request = make_request(verification=verification)
    drafter.vocab_size = 20
    [found] = run(drafter, wanted(request, request.prompt, 8))
    assert len(found.tokens) == 8
    assert max(found.tokens) < 20
    if verification == "ratio":
        assert len(spans(found.proposal, 8, 20)) == 8  # the target takes no wider distributions


def test_a_text_with_a_token_that_the_draft_model_lacks_gets_no_draft_and_others_do():
    narrow = make_checkpoint(1, num_tokens=VOCAB - 1)
    drafter = Drafter(narrow, make_engine(narrow))
    lacking, ordinary = make_request(1, prompt=(5, VOCAB - 1)), make_request(2)
    found = run(drafter, wanted(lacking, lacking.prompt, 4), wanted(ordinary, ordinary.prompt, 4))
    assert [len(each.tokens) for each in found] == [0, 4]


@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_only_kept_tokens_are_drafted(tmp_path, verification):
    kept = np.arange(0, 258, 2)
    file = gguf_models.keeping(tmp_path / "kept.gguf", kept, np.arange(258) // 2)
    checkpoint = engines.load(str(file))
    drafter = Drafter(checkpoint, engines.start(checkpoint, num_pages=8))
    request = make_request(verification=verification, sampling=Sampling(temperature=5.0, seed=1))
    [proposed] = run(drafter, wanted(request, [1, 3, 200], 12))
    assert len(set(proposed.tokens)) > 6
    assert set(proposed.tokens) <= set(kept.tolist())
    if verification == "ratio":
        assert (proposals.decode(proposed.proposal, 12, 258, proposed.tokens)[:, 1::2] == 0).all()
