"""Draft nodes send the distributions that they sample from; invalid ones are refused by name."""

import math
import struct

import pytest
import torch

from goodspeed.errors import ConfigError, InvalidProposal
from goodspeed.exact.proposal_bytes import MAX_K, cut
from goodspeed.exact.proposals import KINDS, decode, make, position_bytes
from tests.exact.rounded import rounded

VOCAB = 40


def draft_probs(batch: int = 3, vocab: int = VOCAB):
    return torch.randn(batch, vocab, generator=torch.Generator().manual_seed(batch)).mul(2).softmax(-1)


def test_a_lattice_by_hand():
    proposal = make(torch.tensor([[0.2, 0.0, 0.3, 0.4, 0.1]]), "lattice", k=3)
    assert proposal.pack() == [struct.pack("<BI3H3H", 3, 3, 0, 2, 3, 32768, 49151, 65535)]
    total = 65535 + 49151 + 32768
    assert rounded(proposal)[0].tolist() == pytest.approx([32768 / total, 0, 49151 / total, 65535 / total, 0])


def test_dense_by_hand():
    row = torch.tensor([[0.25, 0.75]])
    assert make(row, "dense-fp32").pack() == [struct.pack("<BI2f", 1, 2, 0.25, 0.75)]
    assert make(row, "dense-fp16").pack() == [struct.pack("<BI2e", 2, 2, 0.25, 0.75)]


def test_zero_weights_do_not_travel():
    proposal = make(torch.tensor([[1 - 1e-7, 0.0, 1e-7, 0.0]]), "lattice", k=4)
    assert proposal.pack() == [struct.pack("<BIHH", 3, 1, 0, 65535)]
    assert rounded(proposal)[0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab", [1, 5, VOCAB, 70_000])
def test_decoding_gives_what_was_sampled_from(kind, vocab):
    proposal = make(draft_probs(vocab=vocab), kind, k=16)
    positions = proposal.pack()
    assert max(map(len, positions)) <= position_bytes(kind, vocab, 16)
    probs = decode(b"".join(positions), 3, vocab)
    torch.testing.assert_close(probs, rounded(proposal), rtol=1e-6, atol=0)
    torch.testing.assert_close(probs.sum(1), torch.ones(3))


def test_rounding_to_fp16_comes_first():
    row = torch.tensor([[0.3337, 0.6663]])
    expected = row.half().double()
    torch.testing.assert_close(rounded(make(row, "dense-fp16")), (expected / expected.sum()).float())
    flat = make(torch.full((1, 151_936), 1 / 151_936), "dense-fp16")  # sums to 0.996
    assert decode(b"".join(flat.pack()), 1, 151_936).sum() == pytest.approx(1, abs=1e-5)


def test_a_kind_or_a_k_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="dense-fp32, dense-fp16, lattice"):
        make(draft_probs(), "sparse")
    for k in (0, -1, MAX_K + 1):
        with pytest.raises(ConfigError, match="1 to 256"):
            make(draft_probs(), "lattice", k=k)


# Refusals


def dense(*values: float) -> bytes:
    return struct.pack(f"<BI{len(values)}f", 1, len(values), *values)


def lattice(ids: list[int], weights: list[int]) -> bytes:
    return struct.pack(f"<BI{len(ids)}H{len(weights)}H", 3, len(ids), *ids, *weights)


GOOD = dense(0.5, 0.5)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends after 0 of 1"),
        (GOOD[:3], "ends after 0 of 1"),
        (GOOD[:-1], "has 12 bytes, but its 1 positions take 13"),
        (GOOD + b"\0", "has 14 bytes"),
        (b"\0" + GOOD[1:], "unknown kind 0"),
        (struct.pack("<BI", 1, 0), "0 entries, not 1 to 4"),
        (dense(*[0.2] * 5), "5 entries, not 1 to 4"),
        (struct.pack("<BI", 1, 0xFFFFFFFF), "4294967295 entries"),
        (dense(math.nan, 1.0), "not a finite number"),
        (dense(math.inf, 1.0), "not a finite number"),
        (struct.pack("<BI2H", 2, 2, 0x7C01, 0x3C00), "not a finite number"),  # a signalling NaN
        (dense(-0.5, 1.5), "negative"),
        (dense(0.5, 0.4), "sum to 0.9000"),
        (dense(0.51, 0.52), "sum to 1.0300"),
        (dense(3e38, 3e38), "sum to"),
        (lattice([], []), "0 entries, not 1 to 4"),
        (lattice([1, 0], [1, 1]), "not strictly increasing"),
        (lattice([1, 4], [1, 1]), "token id 4 outside the vocabulary of 4"),
        (struct.pack("<BIIH", 4, 1, 0xFFFFFFFF, 1), "token id 4294967295 outside"),
        (lattice([1, 2], [1, 0]), "weight of zero"),
        (lattice([0, 1, 2, 3, 4], [1] * 5), "5 entries, not 1 to 4"),
    ],
)
def test_a_malformed_position_is_refused_by_name(data, says):
    with pytest.raises(InvalidProposal, match=says):
        decode(data, 1, 4)
    with pytest.raises(InvalidProposal):
        decode(GOOD + data, 2, 4)


def test_a_lattice_of_more_than_256_tokens_is_refused():
    assert decode(lattice(list(range(256)), [1] * 256), 1, 1000).count_nonzero() == 256
    with pytest.raises(InvalidProposal, match="257 entries, not 1 to 256"):
        decode(lattice(list(range(257)), [1] * 257), 1, 1000)


def test_a_sum_within_two_percent_is_scaled():
    assert decode(dense(0.5, 0.49), 1, 4)[0].tolist() == pytest.approx([50 / 99, 49 / 99, 0, 0])


def test_drafted_tokens_must_have_been_possible():
    data = dense(0.5, 0.5) + lattice([1, 3], [1, 1])
    assert decode(data, 2, 4, tokens=[0, 3]).shape == (2, 4)
    for tokens, says in (
        ([2, 3], "position 0 of the proposal: token 2 has probability zero"),
        ([0, 2], "position 1 of the proposal: token 2 has probability zero"),
        ([0, 4], "token id 4 outside the vocabulary"),
        ([0, -1], "token id -1 outside the vocabulary"),
    ):
        with pytest.raises(InvalidProposal, match=says):
            decode(data, 2, 4, tokens=tokens)


def test_sizes_are_checked_before_anything_is_allocated():
    with pytest.raises(InvalidProposal):
        decode(b"", 1 << 40, 1 << 40)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_is_cut_at_its_positions(kind):
    positions = make(torch.rand(3, 50).softmax(1), kind, k=7).pack()
    whole = b"".join(positions)
    assert [cut(whole, length) for length in range(4)] == [b"".join(positions[:length]) for length in range(4)]
    assert cut(whole, 4) == whole  # what is malformed stays so, for `decode` to refuse
    assert cut(b"\x09" + whole[1:], 1) == b"\x09" + whole[1:]
