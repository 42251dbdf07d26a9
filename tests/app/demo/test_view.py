"""Views of a running demo."""

import asyncio
import io

import pytest
from rich.console import Console

from goodspeed.app.demo import view
from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.state import DemoState
from goodspeed.serving.prompts import Prompt


@pytest.fixture
def state() -> DemoState:
    """Two clients in the middle of a run; one is done."""
    state = DemoState.of(
        [Client("client-1", "small", Prompt("", "math", 1)), Client("client-2", "large", Prompt("", "[b]sql[/b]", 2))]
    )
    for one in state.progress.values():
        one.text = "x" * 200 + " the\n\x1b[31mend"
        one.num_tokens, one.num_rounds, one.num_drafted, one.num_accepted = 12, 4, 10, 5
        one.first_round, one.last_round, one.may_draft, one.elapsed_s = 1, 8, 7, 3.0
    state.progress["client-2"].finish_reason = "length"
    state.num_rounds = 8
    first, second = state.progress.values()
    first.drafted_by, first.accepted_by = {"model": 8, "ngram": 2, "self": 0}, {"model": 4, "ngram": 1, "self": 0}
    second.drafted_by, second.accepted_by = {"model": 6, "ngram": 1, "self": 3}, {"model": 5, "ngram": 0, "self": 0}
    return state


def test_the_table_shows_every_client(state: DemoState) -> None:
    console = Console(file=io.StringIO(), width=140, record=True)
    console.print(view.table(DemoConfig(), state, 140))
    shown = console.export_text()
    assert "gradient policy, continuous rounds, budget 24: round 8, 24 tokens" in shown
    for column in ("may draft", "accepted", "goodput"):  # each is explained below
        assert f"{column}: " in " ".join(shown.split("└")[1].split())
    assert "\naccepted of drafted tokens: model 9 of 14, ngram 1 of 3, self 0 of 3" in shown
    first, second = (line for line in shown.splitlines() if "client-" in line)
    assert [cell.strip() for cell in first.split("│")][1:8] == ["client-1", "math", "small", "7", "0.50", "1.50", "4.0"]
    assert "done" in second
    assert "[b]sql[/b]" in second  # text is not markup
    assert "xx the [31mend" in first  # nothing that a terminal would obey
    assert max(map(len, shown.splitlines())) <= 140
    told = "accepted of drafted tokens in complete texts: model 9 of 14, ngram 1 of 3, self 0 of 3"
    assert view.drafted(DemoConfig(http=True), state) == told  # over HTTP it is known of no others


def test_a_narrow_terminal_shows_every_column_but_the_draft_models_and_some_text(state: DemoState) -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(view.table(DemoConfig(), state, 80))
    shown = console.export_text()
    heads = " ".join(" ".join(line.split("┃")) for line in shown.splitlines()[2:4]).split()
    assert heads == "may tokens client domain draft accepted goodput per s text".split()
    [line] = [line for line in shown.splitlines() if "client-1" in line]
    assert line.split("│")[-2].strip().endswith("end")  # the newest of the text
    assert "…" not in shown


def test_without_a_terminal_every_end_is_told_once(state: DemoState, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        watching = asyncio.create_task(view.View().watch(DemoConfig(), state))
        await asyncio.sleep(0)  # its first look
        state.progress["client-1"].finish_reason = "stop"
        watching.cancel()
        await asyncio.wait([watching])

    asyncio.run(work())
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["client-2 ([b]sql[/b]): 12 tokens in 3.0 s", "client-1 (math): 12 tokens in 3.0 s"]


def test_what_goes_on_is_a_line_each_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    plain = view.View()
    plain.doing("1 of 2 draft nodes are ready")
    plain.doing("1 of 2 draft nodes are ready", for_s=10.04)
    plain.done()
    assert capsys.readouterr().err.splitlines() == [
        "1 of 2 draft nodes are ready",
        "1 of 2 draft nodes are ready (10 s so far)",
    ]


def test_what_goes_on_is_one_line_that_changes_on_a_terminal() -> None:
    out = io.StringIO()
    live = view.LiveView(Console(file=out, force_terminal=True, width=100))
    live.doing("1 of 2 [b]nodes[/b]")
    live.doing("2 of 2 [b]nodes[/b]")
    live.done()
    live.done()
    live.say("all are ready")
    told = out.getvalue()
    assert "1 of 2 [b]nodes[/b]" in told.partition("2 of 2 [b]nodes[/b]")[0]
    assert told.count("\n") == 2, told  # where the changing line began, and after what was said
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert told.count(hide) == told.count(show) == 1  # the cursor is back


def test_only_a_terminal_gets_a_table() -> None:
    assert type(view.create()) is view.View
