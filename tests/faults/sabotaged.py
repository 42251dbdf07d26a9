"""A draft node whose draft model can be spoiled while it runs: `python -m tests.faults.sabotaged FILE SHARE ...`.

The rest are options of `goodspeed-draft`. It is as patient as the product, times SHARE. What FILE says is done before
each step of the draft model:

    works           nothing
    slow SECONDS    sleeps
    hangs           sleeps until FILE says something else
    takes BYTES     allocates so much, for the time of the step, as a large model does
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch

from draft_node import cli
from draft_node.model import circuit_breaker, drafting
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Proposed

_step: Any = Drafter.step


def main() -> int:
    file, share = Path(sys.argv.pop(1)), float(sys.argv.pop(1))
    timeout_s = share * circuit_breaker.DRAFTING_TIMEOUT_S
    for module in (drafting, circuit_breaker):  # these have the name from the first
        vars(module)["DRAFTING_TIMEOUT_S"] = timeout_s
    circuit_breaker.OPEN_S *= share
    circuit_breaker.MAX_OPEN_S *= share

    def spoiled(drafter: Drafter) -> list[Proposed]:
        taken = _obey(file)
        try:
            return list(_step(drafter))
        finally:
            del taken

    Drafter.step = spoiled  # type: ignore[assignment, method-assign]
    return cli.main()


def _obey(file: Path) -> torch.Tensor | None:
    what, _, number = file.read_text().partition(" ")
    if what == "slow":
        time.sleep(float(number))
    while what == "hangs" and file.read_text() == what:
        time.sleep(0.02)
    return torch.empty(int(number), dtype=torch.uint8) if what == "takes" else None


if __name__ == "__main__":
    sys.exit(main())
