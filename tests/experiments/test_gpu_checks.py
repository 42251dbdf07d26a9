"""The checks of `make gpu` on a CPU: that they run, and can fail. What a GPU computes only a GPU can show."""

import pytest
import torch

from goodspeed.engine.torch.loading import start
from tests.gpu import engine_checks
from tests.gpu.checks import CHECKS

CPU = torch.device("cpu")
SLOW = ("schedule 1", "vocabulary 151936", "zero", "float16 logits, qwen3", "float16 logits, mistral")
QUICK = [name for name in CHECKS if not any(word in name for word in SLOW)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_a_check_passes_on_the_cpu(name):
    CHECKS[name](CPU)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["float32 logits, llama, schedule 0", "bfloat16 logits, llama"])
def test_a_rollback_that_goes_too_far_is_found(monkeypatch, name):
    monkeypatch.setattr(engine_checks, "start", forgetful)
    with pytest.raises(AssertionError, match="differs by"):
        CHECKS[name](CPU)


def forgetful(checkpoint, **size):
    """Starts an engine that is right in its own trial, and wrong afterwards."""
    engine = start(checkpoint, **size)
    truncate = engine.pool.truncate
    vars(engine.pool)["truncate"] = lambda key, length: truncate(key, max(0, length - 1))
    return engine
