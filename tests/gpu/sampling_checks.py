"""Sampling and both verification rules on a device beside the same on the CPU, and that nothing waits for a GPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.proposals import KINDS, decode, make
from goodspeed.exact.rejection import overlaps, ratios, verify_match, verify_ratio
from goodspeed.exact.sampling import Role, SamplingBatch, choose, sample, to_probs, uniform
from tests.exact.rounded import rounded
from verify_node.model.evidence import log_gains

BATCH = 64
LENGTH = 3  # drafted tokens of each of BATCH / 4 sessions
WIDE = 151_936  # vocabulary of Qwen3


class Sampling(NamedTuple):
    """A session's sampling, without the packages that messages need; see `goodspeed.exact.sampling.Sampling`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


ROWS = (
    Sampling(seed=5),
    Sampling(temperature=0.7, top_k=50, seed=6),
    Sampling(top_p=0.9, seed=7),
    Sampling(temperature=0.0),
)
POSITIONS = torch.arange(BATCH)
DRAFTED = torch.arange(BATCH // 4) % (LENGTH + 1)  # [sessions], from nothing to the whole draft


def make_logits(vocab: int) -> Tensor:
    return torch.randn(BATCH, vocab, generator=torch.Generator().manual_seed(0)) * 3


def batch_on(device: torch.device | str) -> SamplingBatch:
    return SamplingBatch.of(ROWS, [BATCH // 4] * 4, device)


def probabilities_equal_those_of_the_cpu(vocab: int, device: torch.device) -> str:
    expected = to_probs(make_logits(vocab), batch_on("cpu"))
    found = to_probs(make_logits(vocab).to(device), batch_on(device)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    return f"largest difference {float((found - expected).abs().max()):.2g}"


def draws_equal_those_of_the_cpu(vocab: int, device: torch.device) -> None:
    """Checks draws from the same probabilities: the noise is the same, only its logarithm may be rounded otherwise."""
    probs = to_probs(make_logits(vocab), batch_on("cpu"))
    expected = sample(probs, batch_on("cpu").seeds, POSITIONS)
    assert torch.equal(sample(probs.to(device), batch_on(device).seeds, POSITIONS.to(device)).cpu(), expected)


def choices_equal_those_of_the_cpu(vocab: int, device: torch.device) -> str:
    """Checks choices from the same logits: rounding may decide between the two best, and does in one row at most."""
    expected = choose(make_logits(vocab), batch_on("cpu"), POSITIONS)
    found = choose(make_logits(vocab).to(device), batch_on(device), POSITIONS.to(device)).cpu()
    num_others = int((found != expected).sum())
    assert num_others <= 1, f"{num_others} of {BATCH} rows chose another token"
    return f"{num_others} of {BATCH} differ"


def uniform_noise_equals_that_of_the_cpu(device: torch.device) -> None:
    seeds = torch.arange(1000)
    assert torch.equal(uniform(seeds.to(device), Role.FINAL, 1, 2, 3).cpu(), uniform(seeds, Role.FINAL, 1, 2, 3))


def rules_change_what_they_change_on_the_cpu(device: torch.device) -> None:
    rows, texts = make_logits(1000), make_text_rows()
    words = torch.randint(-(1 << 31), 1 << 31, (BATCH, -(-1000 // 32)), dtype=torch.int32).numpy()
    first = 0
    for number, text in enumerate(texts):
        texts[number] = replace(text, allowed=words[first : first + len(text.paths)])
        first += len(text.paths)
    torch.testing.assert_close(process(rows.to(device), texts).cpu(), process(rows, texts))


class Bias(NamedTuple):
    token: int
    bias: float


class Rules(NamedTuple):
    presence_penalty: float = 0.5
    frequency_penalty: float = 0.25
    repetition_penalty: float = 1.3
    min_p: float = 0.001
    logit_bias: tuple[Bias, ...] = (Bias(7, -3.0), Bias(8, 2.0))

    @property
    def reads_text(self) -> bool:
        return True


def make_text_rows() -> list[TextRows]:
    """The texts of a batch, a row each, with bias, penalties, min_p and banned tokens."""
    rules = Rules()
    return [
        TextRows([(row, 5)], rules, 0.8, [tuple(range(row, 1100, 100))], TextCounts.of(range(row), range(row, 3 * row)))
        for row in range(BATCH)
    ]


def match_verdicts_equal_those_of_the_cpu(device: torch.device) -> None:
    """Drafts of which about two thirds of the tokens are the target's own."""
    target = choose(make_logits(1000), batch_on("cpu"), POSITIONS).view(-1, LENGTH + 1)
    drafts = torch.where(torch.arange(target.numel()).view(target.shape) % 3 > 0, target, target + 1)[:, :LENGTH]
    ours = (target, drafts, DRAFTED)
    theirs = [tensor.to(device) for tensor in ours]
    for found, expected in zip(verify_match(*theirs), verify_match(*ours), strict=True):
        assert torch.equal(found.cpu(), expected)


def ratio_verdicts_equal_those_of_the_cpu(vocab: int, device: torch.device) -> None:
    target = to_probs(make_logits(vocab), batch_on("cpu")).view(-1, LENGTH + 1, vocab)
    proposal = make(make_logits(vocab).mul(0.8).softmax(-1), "lattice")
    seeds = batch_on("cpu").seeds
    tokens = proposal.sample(uniform(seeds, Role.DRAFT, 1, 2, POSITIONS)).view(-1, LENGTH + 1)[:, :LENGTH]
    probs = rounded(proposal).view(-1, LENGTH + 1, vocab)[:, :LENGTH]
    accept = uniform(seeds, Role.ACCEPT, 1, 2, POSITIONS).view(-1, LENGTH + 1)[:, :LENGTH]
    ours = (target, tokens, probs, DRAFTED, accept, uniform(seeds[: len(target)], Role.FINAL, 1, 2, 3))
    theirs = [tensor.to(device) for tensor in ours]
    for found, expected in zip(verify_ratio(*theirs), verify_ratio(*ours), strict=True):
        assert torch.equal(found.cpu(), expected)
    torch.testing.assert_close(ratios(*theirs[:4]).cpu(), ratios(*ours[:4]))
    torch.testing.assert_close(overlaps(*theirs[:1], *theirs[2:4]).cpu(), overlaps(*ours[:1], *ours[2:4]))


def zero_is_never_drawn_from_wide_rows(device: torch.device) -> None:
    rows = SamplingBatch.of([Sampling(top_k=100)], [BATCH], device)
    proposal = make(to_probs(make_logits(WIDE).to(device), rows), "dense-fp32")
    for noise in (0.0, 0.5, 1 - 2.0**-53):
        tokens = proposal.sample(torch.full((BATCH,), noise, device=device, dtype=torch.float64))
        assert (rounded(proposal).gather(1, tokens.unsqueeze(1)) > 0).all()


def proposals_arrive_as_they_were_sampled(kind: str, device: torch.device) -> None:
    proposal = make(make_logits(5000).to(device).softmax(-1), kind)
    sent = decode(b"".join(proposal.pack()), BATCH, 5000)
    torch.testing.assert_close(sent, rounded(proposal).cpu(), rtol=1e-6, atol=0)


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """CUDA only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def nothing_waits_for_the_device(device: torch.device) -> None:
    rows = make_logits(5000).pin_memory().to(device, non_blocking=True)
    torch.cuda.synchronize(device)
    with waiting_is_an_error():
        a_round_of_both_rules(rows)


def a_round_of_both_rules(rows: Tensor) -> None:
    """All that verification does between the logits and the transfer of its results."""
    sampling = batch_on(rows.device)
    rows = process(rows, make_text_rows())
    positions = torch.arange(BATCH, device=rows.device)
    choose(rows, sampling, positions)  # the match rule: its comparison is on the host
    probs = to_probs(rows, sampling)
    drafted = torch.full((BATCH // (LENGTH + 1),), 2, device=rows.device)
    noise = uniform(sampling.seeds, Role.DRAFT, 1, 2, positions)
    accept, target_probs = noise.view(-1, LENGTH + 1)[:, :LENGTH], probs.view(-1, LENGTH + 1, rows.shape[1])
    for kind in KINDS:
        proposal = make(probs, kind)
        tokens = proposal.sample(noise).view(-1, LENGTH + 1)[:, :LENGTH]
        draft_probs = rounded(proposal).view(target_probs.shape)[:, :LENGTH]
        verify_ratio(target_probs, tokens, draft_probs, drafted, accept, noise[: len(drafted)])
        log_gains(ratios(target_probs, tokens, draft_probs, drafted), overlaps(target_probs, draft_probs, drafted))
