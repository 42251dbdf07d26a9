"""A rank that leaves its keys and values in the file that $GOODSPEED_LEFT names, when it is told to end."""

import os

import numpy as np

from goodspeed.parallel.following import Follower, run

LEFT = "GOODSPEED_LEFT"


def leave_memory(follower: Follower) -> None:
    np.save(os.environ[LEFT], np.stack([pages.numpy() for pages in follower.memory.pages]))


if __name__ == "__main__":
    run(leave_memory)
