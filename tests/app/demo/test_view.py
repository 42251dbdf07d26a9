"""What a demo shows."""

import asyncio

import pytest

from goodspeed.app.demo.view import View
from tests.app.demo import made

TEXTS = ("one\n\x1b[31mtwo", "three")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_run_is_counted_in_place_on_a_terminal_and_answers_command_none(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    answers = [made.answer(f"domain{number}", 10, 2.0, text=text) for number, text in enumerate(TEXTS)]
    view = View()

    async def work() -> None:
        watching = asyncio.create_task(view.watch("run 1", answers))
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait([watching])

    asyncio.run(work())
    view.show(answers)
    in_place = "run 1: 20 tokens, 10/s \r" if is_terminal else ""
    assert capsys.readouterr().err == (
        f"{in_place}run 1: 20 tokens, 10/s\n"
        "domain0, small: 10 tokens, 5/s\none\n\\x1b[31mtwo\n\n"
        "domain1, small: 10 tokens, 5/s\nthree\n\n"
    )
