"""How the ranks of one machine find each other: a store on the loopback interface, then torch.distributed.

The ranks meet before they first wait for each other in torch, since a wait there has a limit: one rank may load much
longer than another.
"""

import os
import socket
from datetime import timedelta

import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore

LOOPBACK = "127.0.0.1"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Environment variables that name the network interface of torch's libraries."""

ANSWER_S = 120.0
"""Longest wait of one rank for the others within a forward pass: it takes seconds, or somebody is gone."""

MEETING_S = 7200.0
"""Longest wait for the others to load; rank 0 watches their processes meanwhile, and they watch rank 0."""

JOINED, LOADED = "joined", "loaded"


def make_store(num_ranks: int) -> tuple[TCPStore, int]:
    """Makes the store that rank 0 keeps, and returns it with its port."""
    listening = socket.create_server((LOOPBACK, 0))
    port = int(listening.getsockname()[1])
    store = TCPStore(
        LOOPBACK,
        port,
        num_ranks,
        True,
        timedelta(seconds=ANSWER_S),
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )
    return store, port


def find_store(port: int, num_ranks: int) -> TCPStore:
    """Connects to the store of rank 0."""
    return TCPStore(LOOPBACK, port, num_ranks, False, timedelta(seconds=ANSWER_S))


def join(store: TCPStore, rank: int, num_ranks: int, device: str) -> None:
    """Makes this process a rank; returns when all are there. Each rank has a GPU of its own number, or the CPU."""
    stay_on_this_machine()
    os.environ["LOCAL_RANK"] = str(rank)  # by which transformers chooses the GPU
    own = torch.device("cuda", rank) if device == "cuda" else None
    if own is not None:
        torch.cuda.set_device(own)
    distributed.init_process_group(
        "gloo" if own is None else "nccl",
        store=store,
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=ANSWER_S),
        device_id=own,
    )


def stay_on_this_machine() -> None:
    """Keeps torch's connections between ranks on the loopback interface."""
    names = [name for _, name in socket.if_nameindex()]
    for variable in INTERFACES:
        os.environ.setdefault(variable, "lo" if "lo" in names else "lo0")


def arrive(store: TCPStore, where: str, rank: int) -> None:
    store.set(f"{where}/{rank}", "")


def have_arrived(store: TCPStore, where: str, num_ranks: int) -> bool:
    """Whether all ranks are there."""
    return bool(store.check([f"{where}/{rank}" for rank in range(num_ranks)]))


def wait_for_all(store: TCPStore, where: str, num_ranks: int) -> None:
    """Waits until all ranks are there, as those do that rank 0 started."""
    store.wait([f"{where}/{rank}" for rank in range(num_ranks)], timedelta(seconds=MEETING_S))
