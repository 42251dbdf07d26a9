"""A rank that leaves its keys and values in the file that $GOODSPEED_LEFT names, when it is told to end."""

import os

import numpy as np

from goodspeed.engine.torch.kv_cache import KVPool
from goodspeed.engine.torch.tensor_parallel.following import run

LEFT = "GOODSPEED_LEFT"


def leave_memory(memory: KVPool | None) -> None:
    assert memory is not None
    np.save(os.environ[LEFT], np.stack([pages.numpy() for pages in memory.pages]))


if __name__ == "__main__":
    run(leave_memory)
