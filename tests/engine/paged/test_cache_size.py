"""The KV pool takes its share of a machine's memory."""

import os

import pytest
import torch

from goodspeed.engine.paged import cache_size

CPU = torch.device("cpu")
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("content", "available"),
    [
        ("1048576\n", 1048576),
        ("max\n", PHYSICAL),  # version 2 without a limit
        ("9223372036854771712\n", PHYSICAL),  # version 1 without a limit
        ("", PHYSICAL),
        ("0\n", PHYSICAL),
        (None, PHYSICAL),
    ],
)
@pytest.mark.parametrize(
    "file", ["memory.max", "old_limit", "system.slice/memory.max", "system.slice/verify/memory.max"]
)
def test_a_containers_limit_counts(tmp_path, monkeypatch, content, available, file):
    monkeypatch.setattr(cache_size, "CGROUPS", tmp_path)
    monkeypatch.setattr(cache_size, "OLD_LIMIT", tmp_path / "old_limit")
    monkeypatch.setattr(cache_size, "OWN_CGROUP", tmp_path / "own")
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/system.slice/verify\n")
    (tmp_path / "system.slice/verify").mkdir(parents=True)
    if content is not None:
        (tmp_path / file).write_text(content)
    assert cache_size.pages_for(1024, CPU, memory_fraction=0.5) == int(available * 0.5) // 1024
