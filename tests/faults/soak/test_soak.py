"""The soak itself, for half a minute: real processes, a fault every two seconds, and every promise held."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.soak.judging import Weather
from tests.faults.soak.plan import Fault
from tests.faults.soak.site import Site
from tests.nodes import ENVIRONMENT, ROOT

OPTIONS = ("--minutes=0.5", "--nodes=4", "--texts=5", "--gap-s=1.5", "--seed=0", "--json")
DEADLINE_S = 600.0  # of a wait in vain


@pytest.mark.alone
@pytest.mark.slow_faults
def test_half_a_minute_of_faults_breaks_no_promise() -> None:
    command = [sys.executable, "-m", "tests.faults.soak", *OPTIONS]
    ended = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stderr[-5000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["kept"]
    assert result["texts"]["exact"] > 3
    assert result["faults"]["kill"] > 0
    assert result["faults"]["kill of the verify node"] == 1
    assert len(result["tokens_by_node"]) == 4


def test_a_fault_that_cannot_be_done_is_told_and_excuses_nothing_after_it(tmp_path: Path) -> None:
    async def strike() -> None:
        site.strike(Fault(at_s=1.0, kind="freeze", whom="nobody", duration_s=3.0))
        await site.rest()

    weather = Weather()
    site = Site(tmp_path, [], weather, clock=lambda: 5.0)
    asyncio.run(strike())
    assert [type(failure) for failure in site.failures] == [KeyError]
    assert weather.present() == []
