"""The first promise, on real sockets with the embedded models: the text is the target's own, whatever happens."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from draft_node.core.actions import Finish
from draft_node.core.generation import Generation
from goodspeed.embedded.models import path
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch.loading import start
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.proposal_bytes import HEADER
from goodspeed.wire.fields import Verification
from goodspeed.wire.generation import LogitRules, TokenBias
from tests import gguf_files
from tests.faults.texts import NEAR_TIE, two_best
from tests.together.cluster.cluster import Cluster, Served, alone, load, make_request, prompt_ids
from verify_node.model.target import RoundResult
from verify_node.scheduler.round import Round

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.95},
]

RULES = [
    None,
    LogitRules(presence_penalty=0.8, frequency_penalty=0.4),
    LogitRules(repetition_penalty=1.4, min_p=0.02),
    LogitRules(min_p=0.1, logit_bias=tuple(TokenBias(token, 1.5) for token in range(0, 4096, 7))),
]


def is_near_tie(request: Generation, tokens: tuple[int, ...]) -> bool:
    """True if the target's two best choices after these tokens are too near for float32 to tell apart."""
    target = load("tiny-target")
    text = [*request.prompt, *tokens]
    logits = start(target, num_pages=256).forward([Chunk("", text, 1)]).double()
    counts = TextCounts.of(request.prompt, tokens)
    rows = TextRows(rules=request.logit_rules, temperature=request.sampling.temperature, counts=counts)
    logits = process(logits, [rows], num_tokens=target.num_tokens)[:, : target.num_tokens]
    gap, _ = two_best(logits, request.sampling, len(text))
    return gap < NEAR_TIE


def check_same(request: Generation, served: Served) -> int:
    """Asserts that this is the target's own text; returns 1 for a text that parted at a near-tie, which is counted."""
    expected = alone(request.prompt, request.sampling, request.max_tokens, request.logit_rules)
    assert isinstance(served.end, Finish), served.end
    if served.tokens == expected:
        assert served.end.reason == ("length" if len(expected) == request.max_tokens else "stop")
        return 0
    pairs = enumerate(zip(expected, served.tokens, strict=False))
    parted = next((i for i, (left, right) in pairs if left != right), min(len(expected), len(served.tokens)))
    assert is_near_tie(request, expected[:parted]), f"another text from token {parted} on"
    return 1


def check_all(requests: dict[str, list[Generation]], served: dict[str, list[Served]]) -> None:
    num_texts = num_ties = 0
    for name, wanted in requests.items():
        num_texts += len(wanted)
        num_ties += sum(check_same(*pair) for pair in zip(wanted, served[name], strict=True))
    assert num_ties <= num_texts // 10, f"{num_ties} of {num_texts} texts parted at near-ties: too many to believe"


def every_sampling(first_seed: int, max_tokens: int = 32, **options: Any) -> list[Generation]:
    """Texts of every sampling; three of four have rules for their logits, which are others for other first seeds."""
    return [
        make_request(
            prompt_ids(seed), max_tokens, seed=seed, logit_rules=RULES[seed % len(RULES)], **sampling, **options
        )
        for seed, sampling in enumerate(SAMPLINGS, first_seed)
    ]


DRAFTS: dict[str, dict[str, Any]] = {
    "small": {"model": "tiny-draft-s"},
    "medium": {"model": "tiny-draft-m"},
    "target": {"model": "tiny-target", "max_draft": 5},
    "none": {"model": "tiny-draft-s"},
    "parallel": {"model": "tiny-draft-p"},
    "openvino": {"model": gguf_files.made("tiny-draft-s")},
    "openvino-parallel": {"model": gguf_files.made("tiny-draft-p")},
}


@pytest.mark.parametrize(
    "verify_options",
    [
        pytest.param({}, id="continuous", marks=pytest.mark.thorough),
        pytest.param(
            {"preset": "paper", "policy": "fixed", "budget": 9}, id="barrier-fixed", marks=pytest.mark.thorough
        ),
        pytest.param({"budget": 1, "max_round_tokens": 16}, id="starved"),
        pytest.param({"kv_pages": 44}, id="preempted", marks=pytest.mark.thorough),
    ],
)
def test_match_gives_the_targets_own_text_for_every_draft_and_mix(verify_options: dict[str, Any]) -> None:
    requests = {name: every_sampling(5 * i) for i, name in enumerate(DRAFTS)}
    requests["none"] = every_sampling(15, max_draft=0)
    cluster = Cluster(verify_options, DRAFTS)
    served = cluster.serve(requests)
    check_all(requests, served)
    assert not cluster.verify.core.replies.refusals
    statistics = {name: [each.statistics for each in served[name]] for name in served}
    assert not any(each.num_drafted for each in statistics["none"])
    assert any(each.num_accepted for name in ("small", "medium", "target") for each in statistics[name])
    if not verify_options:
        assert any(each.accepted["model"] for each in statistics["openvino"])


def test_greedy_text_is_that_of_plain_transformers() -> None:
    model = AutoModelForCausalLM.from_pretrained(path("tiny-target"), dtype=torch.float32).eval()
    requests = {name: [make_request(prompt_ids(i), 40, temperature=0.0)] for i, name in enumerate(DRAFTS)}
    served = Cluster({}, DRAFTS).serve(requests)
    greedy = {"do_sample": False, "max_new_tokens": 40, "pad_token_id": 0}
    for name, (request,) in requests.items():
        prompt = torch.tensor([request.prompt])
        with torch.inference_mode():
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **greedy)
        expected = [token for token in out[0, prompt.shape[1] :].tolist() if token not in request.stop_ids]
        assert list(served[name][0].tokens) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("verification", ["match", "ratio"])
def test_a_draft_equal_to_the_target_is_always_accepted(verification: Verification) -> None:
    """But for alternatives in trees, which are for when it is not. Texts do not end: what follows would be dropped."""
    asked: dict[str, Any] = {"temperature": 1.0, "verification": verification, "drafter": "model", "stop_ids": ()}
    requests = [make_request(prompt_ids(i), 32, seed=i, **asked) for i in range(3)]
    cluster = Cluster({"preset": "paper"}, {"a": {"model": "tiny-target", "proposal": "dense-fp32"}})
    cluster.serve({"a": requests})
    counts = cluster.verify.core.counts
    assert counts.num_drafted > 20
    assert counts.num_accepted >= counts.num_drafted - counts.num_alternatives - 3  # at most one near-tie each


@pytest.mark.thorough
def test_a_target_model_that_fails_now_and_then_changes_no_text() -> None:
    class Failing(Cluster):
        """Every fifth forward pass runs out of memory after it has written its keys and values."""

        def _start(self) -> None:
            super()._start()
            run, calls = self.verify.target.run, iter(range(1 << 30))

            def fail_now_and_then(planned: Round) -> RoundResult:
                result = run(planned)
                if next(calls) % 5 == 4 and len(planned.entries) > 1:
                    raise torch.OutOfMemoryError("out of memory, as ordered")
                return result

            self.verify.target.run = fail_now_and_then  # type: ignore[method-assign]

    requests = {"small": every_sampling(0), "medium": every_sampling(5)}
    clients = {name: DRAFTS[name] for name in requests}
    check_all(requests, Failing({}, clients).serve(requests))


# -- a draft node that lies is found, told, and verified by match from then on -----------------------------------------


LYING, HONEST, MATCHING = "lying", "honest", "matching"


class WithLiar(Cluster):
    """A cluster with a liar: it claims that its lattice was equally likely, and always sends the likeliest token."""

    def _start(self) -> None:
        super()._start()
        drafter = self.drafts[LYING].drafter
        draw = drafter._draw_from_proposals

        def lie(rows: list[Any], logits: Any) -> None:
            draw(rows, logits)
            for job in [row.job for row in rows]:
                kind, num_entries = HEADER.unpack_from(job.positions[-1])
                ids, weights = np.frombuffer(job.positions[-1], "<u2", offset=HEADER.size).reshape(2, num_entries)
                job.tree.tokens[-1] = int(ids[weights.argmax()])
                flat = np.full_like(weights, 65535)
                job.positions[-1] = HEADER.pack(kind, num_entries) + ids.tobytes() + flat.tobytes()

        drafter._draw_from_proposals = lie


@pytest.mark.thorough
def test_a_liar_is_found_and_goes_on_under_match() -> None:
    """Its later texts are the target's own with their seeds, which is what match means, and so are others'."""
    draft: dict[str, object] = {"model": "tiny-draft-s"}
    cluster = WithLiar({"preset": "paper"}, {LYING: draft | {"max_sessions": 1}, HONEST: draft, MATCHING: draft})
    requests = {
        LYING: [make_request(prompt_ids(i), 32, seed=i, verification="ratio") for i in range(3)],
        HONEST: [make_request(prompt_ids(i), 24, seed=7, verification="ratio") for i in (0, 0, 1)],
        MATCHING: [make_request(prompt_ids(3), 24, seed=3)],
    }
    served = cluster.serve(requests)
    assert all(isinstance(each.end, Finish) for texts in served.values() for each in texts)
    check_same(requests[MATCHING][0], served[MATCHING][0])
    core = cluster.verify.core
    clients = core.allocator.clients
    assert [clients[name].suspicion.proven for name in (LYING, HONEST, MATCHING)] == [True, False, False]
    assert core.replies.refusals == {"proposal": 1}  # told once
    assert sum(each.statistics.num_refusals for each in served[LYING]) == 1
    check_same(requests[LYING][2], served[LYING][2])  # opened when all was known
    assert clients[HONEST].suspicion.num_drafts > 10
    assert clients[MATCHING].suspicion.num_drafts == 0
