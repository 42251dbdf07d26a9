"""On a CUDA device: the same noise and draws as on the CPU, and never a wait for the device."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from goodspeed.messages import Sampling
from goodspeed.proposals import KINDS, decode, encode, make
from goodspeed.rejection import agreement_match, agreement_ratio, verify_match, verify_ratio
from goodspeed.sampling import Role, SamplingBatch, choose, sample, to_probs, uniform

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

ROWS = (Sampling(), Sampling(temperature=0.7, top_k=50), Sampling(top_p=0.9), Sampling(temperature=0.0))


@pytest.fixture
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def logits(vocab: int, batch: int = 64) -> Tensor:
    return torch.randn(batch, vocab, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("vocab", [1000, 151_936])
def test_draws_equal_those_of_the_cpu(vocab):
    cpu, cuda = (SamplingBatch.of(ROWS, [16] * 4, device) for device in ("cpu", "cuda"))
    positions = torch.arange(64)
    probs = to_probs(logits(vocab), cpu)
    torch.testing.assert_close(to_probs(logits(vocab).cuda(), cuda).cpu(), probs, rtol=1e-4, atol=1e-7)
    tokens = sample(probs.cuda(), cuda.seeds, positions.cuda())
    assert torch.equal(tokens.cpu(), sample(probs, cpu.seeds, positions))


def test_uniform_noise_equals_that_of_the_cpu():
    seeds = torch.arange(1000)
    assert torch.equal(uniform(seeds.cuda(), Role.FINAL, 1, 2, 3).cpu(), uniform(seeds, Role.FINAL, 1, 2, 3))


def test_zero_is_never_drawn_from_wide_rows():
    proposal = make(
        to_probs(logits(151_936).cuda(), SamplingBatch.of([Sampling(top_k=100)], [64], "cuda")), "dense-fp32"
    )
    for noise in (0.0, 0.5, 1 - 2.0**-53):
        tokens = proposal.sample(torch.full((64,), noise, device="cuda", dtype=torch.float64))
        assert (proposal.probs().gather(1, tokens.unsqueeze(1)) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_proposals_made_on_the_device_arrive_as_they_were_sampled(kind):
    proposal = make(logits(5000).cuda().softmax(-1), kind)
    sent = decode(encode(proposal.pack()), 64, 5000)
    torch.testing.assert_close(sent, proposal.probs().cpu(), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("waiting_is_an_error")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_waits_for_the_device():
    rows = logits(5000).pin_memory().cuda(non_blocking=True)
    positions = torch.arange(64, device="cuda")
    sampling = SamplingBatch.of(ROWS, [16] * 4, "cuda")
    target = choose(rows, sampling, positions).view(16, 4)
    probs = to_probs(rows, sampling)
    drafted = torch.full((16,), 2, device="cuda")
    verify_match(target, target[:, :3], drafted)
    agreement_match(target, target[:, :3], drafted)
    noise = uniform(sampling.seeds, Role.DRAFT, 1, 2, positions)
    for kind in KINDS:
        proposal = make(probs, kind)
        tokens = proposal.sample(noise).view(16, 4)[:, :3]
        draft_probs = proposal.probs().view(16, 4, -1)[:, :3]
        verify_ratio(probs.view(16, 4, -1), tokens, draft_probs, drafted, noise.view(16, 4)[:, :3], noise[:16])
        agreement_ratio(probs.view(16, 4, -1), tokens, draft_probs, drafted)
