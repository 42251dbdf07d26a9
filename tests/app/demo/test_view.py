"""Views of a running demo."""

import asyncio
import io

import pytest
from rich.console import Console

from goodspeed.app.demo import view
from goodspeed.app.demo.answers import Answer
from tests.app.demo import made


def shown(answers: list[Answer], width: int, height: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view.panes("run 1 of 4", answers, width, height))
    return console.export_text().splitlines()


@pytest.fixture
def answers() -> list[Answer]:
    long = " ".join(f"word{number}" for number in range(100))
    texts = [long, "one\n\x1b[31mtwo", "[b]no markup[/b]", *["short"] * 5]
    return [made.answer(f"domain{number}", 10, 2.0, text=text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(("width", "columns"), [(60, 1), (80, 2), (151, 2), (160, 4)])
def test_answers_stand_side_by_side_as_the_terminal_is_wide(answers: list[Answer], width: int, columns: int) -> None:
    lines = shown(answers, width)
    assert sum("domain" in line for line in lines) == 8 // columns
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert lines[0].startswith("run 1 of 4: 80 tokens, 40/s")
    assert " domain0, small " in text
    assert " 10 tokens, 5/s " in text
    assert "\\x1b[31mtwo" in text  # nothing that a terminal would obey
    assert "[b]no markup[/b]" in text
    assert all(f"word{number}" in text for number in range(100))


def test_while_answers_come_each_pane_shows_the_end_of_its_text(answers: list[Answer]) -> None:
    lines = shown(answers, 80, 24)
    assert len(lines) <= 24
    assert any("word99" in line for line in lines)
    assert not any("word0 " in line for line in lines)


def watch(shown: view.View, answers: list[Answer]) -> None:
    async def work() -> None:
        watching = asyncio.create_task(shown.watch("run 1", answers))
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait([watching])

    asyncio.run(work())


def test_on_a_terminal_panes_go_and_what_a_run_came_to_stays(answers: list[Answer]) -> None:
    out = io.StringIO()
    live = view.View(Console(file=out, force_terminal=True, width=100, height=30))
    with live.working("starting"):
        pass
    watch(live, answers)
    live.show(answers)
    told = out.getvalue()
    assert "starting" in told
    assert "run 1: 80 tokens, 40/s\n" in told
    assert "the answers: 80 tokens" in told
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert told.count(hide) == told.count(show) > 0  # the cursor is back
