"""What a demo shows of its answers while they come."""

import asyncio

import pytest

from goodspeed.app.demo import view
from goodspeed.app.demo.answers import Answer
from tests.app.demo import made


def lines_of(answers: list[Answer], capsys: pytest.CaptureFixture[str], shows_texts: bool = True) -> list[str]:
    async def work() -> None:
        watching = asyncio.create_task(view.watch("run 1", answers, shows_texts))
        await asyncio.sleep(0)  # its first look
        for one in answers:
            one.text, one.finish_reason = f"{one.text}b\n\nlast", "stop"
        watching.cancel()
        await asyncio.wait([watching])

    for one in answers:
        one.finish_reason = ""
    asyncio.run(work())
    return capsys.readouterr().err.splitlines()


def test_complete_lines_are_told_once_without_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [made.answer("math", 10, 2.0, text="first\na"), made.answer("sql", 10, 4.0, text="\x1b[31mx")]
    assert lines_of(answers, capsys) == [
        "run 1",
        "         math | first",
        "         math | ab",
        "         math | last",
        "          sql | \\x1b[31mxb",
        "          sql | last",
    ]


def test_the_same_texts_are_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of([made.answer("math", 10, 2.0)], capsys, shows_texts=False) == ["run 1"]
