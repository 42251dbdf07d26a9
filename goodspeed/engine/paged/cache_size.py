"""The size of a KV cache: a share of a GPU's free memory, or of this machine's or container's memory."""

import contextlib
import os
import re
from pathlib import Path

import torch

from goodspeed.engine.paged.pages import PagePool
from goodspeed.errors import ConfigError

CPU_FRACTION = 0.1
"""Default share of the machine's or container's memory: several nodes may share it, and untouched memory is free."""

CUDA_FRACTION = 0.85
"""Default share of the memory that is free after the weights are loaded; activations and logits need the rest."""

CPU_KEPT = 0.25
"""Share of the pages that the prefix cache retains on a CPU if no memory size was given. Other processes can use the
untouched rest."""

CGROUPS, OLD_LIMIT = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux mounts control groups of version 2, each with its memory.max, and a container's limit of version 1."""

OWN_CGROUP = Path("/proc/self/cgroup")


def make_pool(
    page_bytes: int,
    page_size: int,
    device: torch.device,
    *,
    num_pages: int | None,
    memory_fraction: float | None,
    prefix_cache: bool,
) -> PagePool:
    """Returns a pool of so many pages, or of those that a fraction of the memory holds; else of the default fraction.

    page_bytes: of the memory that a page costs. Raises ConfigError as `pages_for` does.
    """
    is_sized = num_pages is not None or memory_fraction is not None
    if num_pages is None:
        num_pages = pages_for(page_bytes, device, memory_fraction)
    max_unused = num_pages if is_sized or device.type != "cpu" else int(num_pages * CPU_KEPT)
    return PagePool(num_pages, page_size, prefix_cache=prefix_cache, max_unused=max_unused)


def pages_for(page_bytes: int, device: torch.device, memory_fraction: float | None = None) -> int:
    """Returns the number of pages in a fraction of the device's memory (CUDA: of the free, CPU: of the total).

    Raises ConfigError for a fraction out of range, or too small for a page.
    """
    if memory_fraction is None:
        memory_fraction = CUDA_FRACTION if device.type == "cuda" else CPU_FRACTION
    if not 0 < memory_fraction <= 1:
        raise ConfigError(f"memory fraction {memory_fraction} must be above 0 and at most 1")
    memory_bytes = int(_available_bytes(device) * memory_fraction)
    if memory_bytes < page_bytes:
        raise ConfigError(f"{memory_bytes} bytes hold no page of {page_bytes} bytes; use more memory")
    return memory_bytes // page_bytes


def _available_bytes(device: torch.device) -> int:
    """Returns a GPU's free memory; of a CPU the memory of this machine, or the limit of this container if lower."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """Returns the memory limits, in bytes, of this process's control groups: of a container, or of a systemd unit.

    Empty without a limit ("max") or Linux.
    """
    limits, groups = [], [CGROUPS]
    with contextlib.suppress(OSError):
        if own := re.search(r"^0::/(.+)$", OWN_CGROUP.read_text(encoding="ascii"), re.MULTILINE):
            groups += [path for path in [CGROUPS / own[1], *(CGROUPS / own[1]).parents] if CGROUPS in path.parents]
    for path in [OLD_LIMIT, *(group / "memory.max" for group in groups)]:
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return [limit for limit in limits if limit > 0]
