"""The other ranks' side: load a part of the model, then compute every order that comes, until the last one.

A rank that fails ends, and rank 0 notices.
"""

import os
import select
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

import msgspec
import torch
from torch._C._distributed_c10d import TCPStore

from goodspeed.engine import checkpoints
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.paged.memory import KVPool, KVShape
from goodspeed.engine.paged.passes import Copy, Memory, Pass, Passes
from goodspeed.engine.runner import try_model
from goodspeed.engine.splitting import Split
from goodspeed.errors import MalformedMessage
from goodspeed.parallel import joining, orders
from goodspeed.parallel.part import Part

MAX_LINE = 1 << 16
FAILED = 1


@dataclass
class Follower:
    """A part of a model, with the keys and values of its heads once it was told how many there are."""

    checkpoint: Checkpoint
    shape: KVShape
    num_layers: int
    memory: KVPool | None = None

    @torch.inference_mode()
    def follow(self, stream: BinaryIO) -> None:
        """Computes orders until the last one; raises EOFError when the stream ends before it."""
        passes: Passes | None = None
        while (order := orders.read(stream)) is not None:
            match order:
                case Memory():
                    passes = self._make_passes(order)
                case Pass() if passes is not None:
                    passes.run(order)
                case Copy() if passes is not None:
                    passes.copy(order)
                case _:
                    raise MalformedMessage("the first order has to be the size of the memory")

    def _make_passes(self, size: Memory) -> Passes:
        at = self.checkpoint
        self.memory = KVPool(self.shape, self.num_layers, size.num_pages, size.page_size, at.dtype, at.device)
        return Passes(at.model, self.memory)


def load(part: Part) -> Follower:
    """Joins the other ranks, loads this one's part, and tries it together with them."""
    torch.set_num_threads(part.threads)
    store = joining.find_store(part.port, part.num_ranks)
    _meet(store, joining.JOINED, part)
    joining.join(store, part.rank, part.num_ranks, part.device)
    checkpoint = checkpoints.load(
        part.model,
        device=f"cuda:{part.rank}" if part.device == "cuda" else part.device,
        dtype=part.dtype,
        generation_config="none",
        split=Split(part.num_ranks, lambda: _meet(store, joining.LOADED, part)),
    )
    return Follower(checkpoint, *try_model(checkpoint, is_split=True)[1:])


def run(done: Callable[[Follower], None] = lambda _: None) -> NoReturn:
    """The process of a rank, from its first line of standard input to its end.

    done: called after the last order.
    """
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    status = FAILED
    try:
        part = msgspec.json.decode(sys.stdin.buffer.readline(MAX_LINE), type=Part)
        follower = load(part)
        follower.follow(sys.stdin.buffer)
        done(follower)
        status = 0
    except Exception as error:
        first_line = str(error).strip().split("\n")[0] or type(error).__name__
        print(f"a rank of --tp cannot go on: {first_line}", file=sys.stderr, flush=True)
    os._exit(status)  # torch's threads may still wait for a rank that is gone


def _meet(store: TCPStore, where: str, part: Part) -> None:
    joining.arrive(store, where, part.rank)
    joining.wait_for_all(store, where, part.num_ranks)


def _end_with_rank_0() -> None:
    """Ends this process when nobody holds the other end of its standard input any more, whatever it waits for."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # of a pipe that is closed, not of what comes
    poll.poll()
    os._exit(FAILED)
