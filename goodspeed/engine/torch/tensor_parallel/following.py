"""The other ranks' side: loads a part of the model, then computes every order until the stream's end marker.

A failed rank exits, and rank 0 notices.
"""

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, NoReturn

import msgspec
import torch

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.checkpoints import Split
from goodspeed.engine.torch.kv_cache import KVPool, KVShape
from goodspeed.engine.torch.loading import try_model
from goodspeed.engine.torch.passes import Copy, Memory, Pass, Passes
from goodspeed.engine.torch.tensor_parallel import joining, orders
from goodspeed.engine.torch.tensor_parallel.joining import RankSettings
from goodspeed.errors import MalformedMessage, first_line

FAILED = 1


def load(part: RankSettings) -> tuple[Checkpoint, KVShape, int]:
    """Joins the other ranks, loads this rank's part, and tests it together with them (`try_model`)."""
    torch.set_num_threads(part.threads)
    store = joining.find_store(part)
    joining.meet(store, joining.JOINED, part.num_ranks)
    joining.join(store, part)
    checkpoint = checkpoints.load(
        part.model,
        device=f"cuda:{part.rank}" if part.device == "cuda" else part.device,
        dtype=part.dtype,
        generation_config="none",
        split=Split(part.num_ranks, lambda: joining.meet(store, joining.LOADED, part.num_ranks)),
    )
    _, shape, num_layers, _ = try_model(checkpoint, is_split=True)
    return checkpoint, shape, num_layers


@torch.inference_mode()
def follow(stream: BinaryIO, checkpoint: Checkpoint, shape: KVShape, num_layers: int) -> KVPool | None:
    """Computes orders until the end marker, and returns the KV cache; EOFError if the stream ends earlier."""
    passes: Passes | None = None
    while (order := orders.read(stream)) is not None:
        match order:
            case Memory(num_pages, page_size):
                device = checkpoint.device
                memory = KVPool(shape, num_layers, num_pages, page_size, checkpoint.dtype, device)
                passes = Passes(checkpoint.model, memory)
            case Pass() if passes is not None:
                passes.run(order)
            case Copy() if passes is not None:
                passes.copy(order)
            case _:
                raise MalformedMessage("the first order must be the size of the KV cache")
    return None if passes is None else passes.memory


def run(done: Callable[[KVPool | None], None] = lambda _: None) -> NoReturn:
    """Runs a rank's process, from its argument (`RankSettings`) to its exit.

    done: called after the end marker, with the KV cache.
    """
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    status = FAILED
    try:
        part = msgspec.json.decode(sys.argv[-1], type=RankSettings)
        done(follow(sys.stdin.buffer, *load(part)))
        status = 0
    except Exception as error:
        print(f"a rank of --tp stopped: {first_line(error)}", file=sys.stderr, flush=True)
    os._exit(status)  # torch's threads may still wait for a rank that is gone


def _end_with_rank_0() -> None:
    """Exits this process as soon as rank 0's end of its standard input is closed, during any other wait."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # reports a closed pipe, not input
    poll.poll()
    os._exit(FAILED)
