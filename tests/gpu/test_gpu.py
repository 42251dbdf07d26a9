"""The checks of this folder under pytest: `pytest tests/gpu -m gpu` on a machine with CUDA."""

import pytest
import torch

from tests.gpu.checks import CHECKS, ON_CUDA_ONLY, Check

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ALL = CHECKS | ON_CUDA_ONLY


@pytest.mark.parametrize("check", ALL.values(), ids=ALL.keys())
def test_on_the_device(check: Check) -> None:
    check(torch.device("cuda"))
