"""Draft nodes of live runs count as those of other machines; a draft worker takes a list that comes early."""

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

from draft_node.config import DraftConfig
from experiments.benchmarks.nodes import workers
from experiments.benchmarks.nodes.workers import Asked, Wanted
from experiments.served import running
from verify_node.config import VerifyConfig

DEADLINE_S = 20.0
WANTED = [Wanted([1], 9, 1.0, 1)]


def test_draft_nodes_are_taken_to_be_elsewhere(monkeypatch):
    """Else the verify node would try whether it is faster without the draft models of its own machine."""
    forked: list[Any] = []

    def fork(*given):
        forked.append(given)
        return SimpleNamespace(stdout=io.StringIO())

    monkeypatch.setattr(running, "fork", fork)
    running.Verify(["--model=m"], 1)
    ((_, _, changed),) = forked
    ((name, elsewhere),) = changed.items()
    assert VerifyConfig(model="m").core.is_shared
    monkeypatch.setattr(name, elsewhere)
    assert not VerifyConfig(model="m").core.is_shared


def worked(monkeypatch, capsys, *lists):
    """Returns what a worker prints for some lists, and the prompts that it left. A text of prompt 1 is endless."""
    left = []

    class Daemon:
        def __init__(self):
            self.connected = asyncio.Event()
            self.core = SimpleNamespace(sessions=None)

        async def serve(self):
            self.connected.set()
            await asyncio.sleep(3600)

        async def generate(self, request):
            statistics = SimpleNamespace(num_drafted=0, num_accepted=0, drafted={}, accepted={})
            session = SimpleNamespace(statistics=statistics, promised=None)
            self.core.sessions = {request.session_id: session}
            try:
                yield "begun"
                if request.prompt == (1,):
                    await asyncio.sleep(3600)
            except asyncio.CancelledError:
                left.append(request.prompt)
                raise

    async def lines():
        for one in lists:
            yield workers._line(one if isinstance(one, Asked) else Asked(one))
            for _ in range(10):  # the worker begins with it
                await asyncio.sleep(0)

    monkeypatch.setattr("draft_node.process.assembly.assemble", lambda config: (Daemon(), None))
    monkeypatch.setattr(workers, "_lines", lines)
    asyncio.run(asyncio.wait_for(workers._work(DraftConfig(model="m")), DEADLINE_S))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()], left


def test_a_worker_ends_what_it_serves_when_another_list_comes(monkeypatch, capsys):
    assert worked(monkeypatch, capsys, WANTED, [], WANTED) == (["connected", []], [(1,), (1,)])


def test_a_worker_serves_so_many_texts_at_once(monkeypatch, capsys):
    for at_once in (1, 2, 3):
        assert worked(monkeypatch, capsys, Asked(WANTED * 3, at_once), [])[1] == [(1,)] * at_once
