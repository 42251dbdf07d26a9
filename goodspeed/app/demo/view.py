"""Shows answers on standard error, side by side; on a terminal as they come."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from goodspeed.app.demo.answers import Answer
from goodspeed.app.demo.options import shown

REFRESH_S = 0.125
PANE_WIDTH, COLUMNS = 38, (4, 2)


def safe(text: str) -> str:
    """Returns text with control and unprintable characters escaped as in a Python string."""
    return "".join(
        char if char.isprintable() or char in "\n\t\xa0\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    return safe(" ".join(text[:500].split()))


class View:
    """Shows the demo: on a terminal in panes that change in place, in a log as lines when a run has ended."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Shows what is waited for, until the block ends."""
        if not self._console.is_terminal:
            self.say(text)
        with self._console.status(Text(text)):
            yield

    async def watch(self, title: str, answers: Sequence[Answer]) -> None:
        """Shows the answers until cancelled."""
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while True:
                    if self._console.is_terminal:
                        size = self._console.size
                        live.update(panes(title, answers, size.width, size.height), refresh=True)
                    await asyncio.sleep(REFRESH_S)
        finally:
            self.say(f"{title}: {_rate(answers)}")

    def show(self, answers: Sequence[Answer]) -> None:
        self._console.print(panes("the answers", answers, self._console.width))


def panes(title: str, answers: Sequence[Answer], width: int, height: int | None = None) -> Table:
    """Returns the answers side by side. height: of all, in which each pane shows the end of its text; None: as high as
    the texts are."""
    columns = next((number for number in COLUMNS if number <= len(answers) and number * PANE_WIDTH <= width), 1)
    rows = -(-len(answers) // columns)
    num_lines = None if height is None else max(1, (height - 2) // rows - 2)
    grid = Table.grid(expand=True)
    grid.title, grid.title_justify = Text(f"{title}: {_rate(answers)}"), "left"
    for _ in range(columns):
        grid.add_column(ratio=1)
    made = [_pane(one, width // columns - 4, num_lines) for one in answers]
    for first in range(0, len(made), columns):
        grid.add_row(*made[first : first + columns])
    return grid


def _pane(one: Answer, width: int, num_lines: int | None) -> Panel:
    lines = Text(safe(one.text)).wrap(Console(width=width), width)
    body = Text("\n").join(lines if num_lines is None else lines[-num_lines:])
    title = f"{one_line(one.client.domain)}, {shown(one.client.draft_model)}"
    told = f"{len(one.token_ids)} tokens, {one.tokens_per_s:.0f}/s"
    return Panel(
        body,
        title=Text(title),
        subtitle=Text(told),
        height=None if num_lines is None else num_lines + 2,
        border_style="green" if one.finish_reason else "dim",
    )


def _rate(answers: Sequence[Answer]) -> str:
    num_tokens, elapsed_s = sum(len(one.token_ids) for one in answers), max(one.elapsed_s for one in answers)
    return f"{num_tokens} tokens, {num_tokens / elapsed_s if elapsed_s else 0.0:.0f}/s"
