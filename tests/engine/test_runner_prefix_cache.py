"""A runner keeps a part of memory without a session."""

from typing import Any

import pytest

from goodspeed.engine import runner as runner_module
from goodspeed.engine.runner import Runner
from tests.micro import make_checkpoint

CHECKPOINT = make_checkpoint(1)


@pytest.mark.parametrize(("options", "kept"), [({}, 25), ({"memory_fraction": 0.5}, 100), ({"num_pages": 8}, 8)])
def test_on_a_cpu_where_nobody_said_how_much_there_is_a_part_is_kept(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kept: int
) -> None:
    monkeypatch.setattr(runner_module, "pages_for", lambda *_: 100)
    assert Runner(CHECKPOINT, prefix_cache=True, **options).pool.max_unused == kept
