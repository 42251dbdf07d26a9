"""The page takes rates of the counters of its last snapshots: by hand, in Node.js."""

import json
import shutil
import subprocess
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.verify_node.watch.page.snapshots import EMPTY, WRITES
from verify_node.watch.app import PAGE
from verify_node.watch.snapshot import Snapshot

NODE = shutil.which("node")
ONE, OTHER = replace(WRITES, num_tokens=0, num_drafted=0), replace(WRITES, name="other", num_tokens=500, num_drafted=0)

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")


def rates(*snapshots: Snapshot) -> list[dict[str, Any]]:
    """Returns what the page says after each of these."""
    look = "const said = look(one); console.log(JSON.stringify({ ...said, clients: [...said.clients] }));"
    asked = f"for (const one of {msgspec.json.encode(snapshots).decode()}) {{ {look} }}"
    program = (PAGE / "recent.js").read_text("utf-8") + asked
    command = [str(NODE), "--input-type=module"]
    ended = subprocess.run(command, input=program, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def at(time_s: float, number: int, **changes: Any) -> Snapshot:
    """After so many rounds of 2 s of forward passes, each with 3 drafted and 4 delivered tokens, of one client."""
    counters = {"num_rounds": number, "num_tokens": 4 * number, "num_drafted": 3 * number}
    wall_s = EMPTY.wall_s | {"forward": 2.0 * number, "receive": 1000.0 * number}
    row = replace(ONE, num_tokens=4 * number, num_drafted=3 * number)
    return replace(EMPTY, at=time_s, wall_s=wall_s, clients=(row,), **counters, **changes)


def test_rates_are_of_the_last_ten_seconds() -> None:
    first, second, _, last = rates(at(100.0, 5), at(105.0, 7), at(111.0, 9), at(120.0, 9))
    assert (first["tokens_per_s"], first["drafted_per_round"], first["wall_s"]["forward"]) == (0, 0, 0)
    assert (second["over_s"], second["rounds_per_s"], second["tokens_per_s"]) == (5.0, 0.4, 1.6)
    assert second["drafted_per_round"] == 3.0
    assert (second["wall_s"]["forward"], second["wall_s"]["receive"]) == (4.0, 1.0), "a wait that began long before"
    assert second["clients"] == [["client-1", {"drafted_per_round": 3.0, "share": 1.0}]]
    assert (last["over_s"], last["tokens_per_s"], last["drafted_per_round"]) == (9.0, 0, 0)
    assert last["clients"][0][1]["share"] == 0


def test_a_client_that_comes_back_brings_none_of_its_old_tokens() -> None:
    both = replace(at(102.0, 7), clients=(*at(102.0, 7).clients, OTHER))
    assert dict(rates(at(100.0, 5), both)[-1]["clients"])["other"] == {"drafted_per_round": 0, "share": 0}


@pytest.mark.parametrize(
    "later", [at(101.0, 1, node=replace(EMPTY.node, boot_id="01")), at(3.0, 9)], ids=["another process", "clock set"]
)
def test_rates_begin_anew_where_the_counters_or_the_clock_do(later: Snapshot) -> None:
    assert rates(at(100.0, 5), later)[-1]["over_s"] == 0
