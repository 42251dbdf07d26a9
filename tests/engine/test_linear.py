"""Prepacked linear layers: the same results up to rounding, wherever they gain, and nowhere else."""

import copy

import pytest
import torch
from torch import nn

from goodspeed.engine import linear
from goodspeed.engine.linear import PrepackedLinear, prepack

pytestmark = pytest.mark.skipif(not linear._is_available(), reason="this build of torch has no oneDNN")


class Model(nn.Module):
    """Layers that gain, one that is too small, and one whose weight is an embedding's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(600, 384)
        self.wide = nn.Linear(384, 512)
        self.narrow = nn.Linear(512, 384, bias=False)
        self.small = nn.Linear(384, 8)
        self.flat = nn.Linear(64, 4096)
        self.head = nn.Linear(384, 600, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.narrow(self.wide(self.embedding(tokens)).relu())
        return self.small(hidden), self.head(hidden), self.flat(hidden[..., :64])


@pytest.mark.parametrize("num_tokens", [1, 7, 100])
@torch.inference_mode()
def test_results_differ_by_rounding_alone(num_tokens):
    model = Model()
    plain = copy.deepcopy(model)
    assert prepack(model) == 3
    tokens = torch.arange(num_tokens)
    for found, expected in zip(model(tokens), plain(tokens), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for found, expected in zip(model(tokens[None]), plain(tokens[None]), strict=True):
        assert found.shape == expected.shape


def test_what_is_packed_and_what_is_not():
    model = Model()
    embedding = model.embedding.weight
    prepack(model)
    assert isinstance(model.wide, PrepackedLinear)
    assert isinstance(model.head, PrepackedLinear)
    assert type(model.small) is nn.Linear
    assert type(model.flat) is nn.Linear
    assert model.embedding.weight is embedding
    assert model.head.weight is embedding  # shared: still there for the embedding
    assert model.wide.weight.shape == (512, 384)
    assert model.wide.weight.is_mkldnn  # not shared: the plain copy is gone


def test_a_second_call_finds_nothing_to_do():
    model = Model()
    assert prepack(model) == 3
    assert prepack(model) == 0


def test_other_precisions_are_not_packed():
    assert prepack(Model().to(torch.float64)) == 0


def test_a_library_that_multiplies_wrong_is_left_alone(monkeypatch):
    monkeypatch.setattr(linear, "_is_right", linear._is_right.__wrapped__)  # not what was found before
    monkeypatch.setattr(linear, "_reorder", lambda weight: torch.ops.mkldnn._reorder_linear_weight(weight * 1.001))
    assert prepack(Model()) == 0
