"""Joins the ranks of one machine: a store on the loopback interface, then torch.distributed."""

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import msgspec
import torch
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

LOOPBACK = "127.0.0.1"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Environment variables that set the network interface of torch's libraries."""

ANSWER_S = 120.0
"""Longest wait of one rank for the others within a forward pass, in seconds; a longer wait means that a rank is
lost."""

POLL_S = 0.05
JOINED, LOADED = "joined", "loaded"


class RankSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank's part of a model: the argument of its process, as JSON."""

    model: str
    device: str  # cpu, or cuda: rank r has GPU r
    dtype: str
    threads: int  # CPU threads of each rank
    rank: int = 0
    num_ranks: int = 1
    port: int = 0  # of the store, on the loopback interface


def make_store(num_ranks: int) -> TCPStore:
    """Makes rank 0's store; it listens on a free port of the loopback interface only."""
    listening = socket.create_server((LOOPBACK, 0))
    port, timeout = int(listening.getsockname()[1]), timedelta(seconds=ANSWER_S)
    descriptor = listening.detach()
    return TCPStore(LOOPBACK, port, num_ranks, True, timeout, wait_for_workers=False, master_listen_fd=descriptor)


def find_store(part: RankSettings) -> TCPStore:
    """Connects to rank 0's store."""
    return TCPStore(LOOPBACK, part.port, part.num_ranks, False, timedelta(seconds=ANSWER_S))


def meet(store: TCPStore, where: str, num_ranks: int, check: Callable[[], None] = lambda: None) -> None:
    """Waits until every rank has reached `where`, without a time limit: loading may outlast torch's own limits.

    check: called meanwhile; ends the wait by an exception.
    """
    store.add(where, 1)
    while store.add(where, 0) < num_ranks:
        check()
        time.sleep(POLL_S)


def join(store: TCPStore, part: RankSettings) -> None:
    """Makes this process a rank; returns when all have joined. Rank r uses GPU r, or the CPU."""
    names = [name for _, name in socket.if_nameindex()]
    for variable in INTERFACES:
        os.environ.setdefault(variable, "lo" if "lo" in names else "lo0")
    os.environ["LOCAL_RANK"] = str(part.rank)  # by which transformers chooses the GPU
    own = torch.device("cuda", part.rank) if part.device == "cuda" else None
    if own is not None:
        torch.cuda.set_device(own)
    distributed.init_process_group(
        "gloo" if own is None else "nccl",
        store=store,
        rank=part.rank,
        world_size=part.num_ranks,
        timeout=timedelta(seconds=ANSWER_S),
        device_id=own,
    )
