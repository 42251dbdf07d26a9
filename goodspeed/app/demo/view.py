"""Shows a running demo on standard error: a live table on a terminal, else occasional lines.

Views poll the demo's state a few times a second.
"""

import asyncio
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from goodspeed.app.demo.options import DemoConfig
from goodspeed.app.demo.state import DemoState, Progress
from goodspeed.app.demo.summary import by_source, printable, sources

REFRESH_S = 0.125
REPORT_S = 5.0
FIXED_WIDTH, MODEL_WIDTH = 65, 15
"""Widths of the table without the columns `text` and `draft model`, and of the column `draft model`."""

MIN_TEXT = 20
"""Width of the text column below which the column `draft model` is omitted."""

CAPTION = (
    "may draft: most tokens beyond its text (rounds take those that are worth it, so these may sum to more than the "
    "budget). accepted: share of its drafted tokens that the target agreed with. "
    "goodput: tokens per round. model, ngram, self: what drafted: draft models, draft nodes' n-grams, the verify node."
)


class View:
    """Shows a demo as lines, for a log."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def doing(self, text: str, for_s: float = 0.0) -> None:
        """Shows the current activity until the next call of `doing` or `done`. for_s: its time so far; 0: not shown."""
        self.say(f"{text} ({for_s:.0f} s so far)" if for_s else text)

    def done(self) -> None:
        """Ends the line of `doing`, if there is one."""

    async def watch(self, config: DemoConfig, state: DemoState) -> None:
        """Shows the state until cancelled."""
        told: set[str] = set()
        report_at = time.monotonic() + REPORT_S
        try:
            while True:
                self._tell_finished(state, told)
                if time.monotonic() >= report_at:
                    self.say(headline(config, state))
                    report_at += REPORT_S
                await asyncio.sleep(REFRESH_S)
        finally:
            self._tell_finished(state, told)

    def _tell_finished(self, state: DemoState, told: set[str]) -> None:
        for name, one in state.progress.items():
            if one.finish_reason and name not in told:
                told.add(name)
                self.say(
                    f"{name} ({one.client.domain or 'no domain'}): {one.num_tokens} tokens in {one.elapsed_s:.1f} s"
                )


def create() -> View:
    console = Console(stderr=True)
    return LiveView(console) if console.is_terminal else View()


class LiveView(View):
    """Shows a demo as a table updated in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def doing(self, text: str, for_s: float = 0.0) -> None:
        """Shows one line updated in place, with the elapsed time."""
        if self._bar is None:
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            self._bar = Bar(*columns, console=self._console, transient=True, refresh_per_second=4)
            self._bar.add_task(text, total=None)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=text)

    def done(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    async def watch(self, config: DemoConfig, state: DemoState) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            try:
                while True:
                    live.update(table(config, state, self._console.width), refresh=True)
                    await asyncio.sleep(REFRESH_S)
            finally:
                live.update(table(config, state, self._console.width), refresh=True)


def headline(config: DemoConfig, state: DemoState) -> str:
    return (
        f"{config.policy} policy, {config.rounds} rounds, budget {config.budget}: "
        f"round {state.num_rounds}, {state.num_tokens} tokens"
    )


def drafted(config: DemoConfig, state: DemoState) -> str:
    """Returns a line with accepted and drafted tokens by source."""
    clients = state.progress.values()
    told = sources(by_source(one.drafted_by for one in clients), by_source(one.accepted_by for one in clients))
    return f"accepted of drafted tokens{' in complete texts' if config.http else ''}: {told}"


def table(config: DemoConfig, state: DemoState, width: int) -> Table:
    """Returns a table with one row per client, and a caption that explains the columns."""
    shown = Table(title=Text(headline(config, state)), title_justify="left", expand=True)
    shown.caption, shown.caption_justify = Text(f"{drafted(config, state)}\n{CAPTION}"), "left"
    has_models = width >= FIXED_WIDTH + MODEL_WIDTH + MIN_TEXT
    for name in ("client", "domain", *(["draft model"] if has_models else [])):
        shown.add_column(name, no_wrap=True)
    for name in ("may\ndraft", "accepted", "goodput", "tokens\nper s"):
        shown.add_column(name, justify="right", no_wrap=True, min_width=4)
    shown.add_column("text", ratio=1, no_wrap=True)
    for one in state.progress.values():
        shown.add_row(*_cells(one, width, has_models), style="dim" if one.finish_reason else None)
    return shown


def _cells(one: Progress, width: int, has_models: bool) -> list[Text]:
    text_width = max(1, width - FIXED_WIDTH - MODEL_WIDTH * has_models)
    cells = [
        one.client.name,
        one.client.domain,
        *([one.client.draft_model] if has_models else []),
        "done" if one.finish_reason else str(one.may_draft),
        f"{one.draft_acceptance_rate:.2f}",
        f"{one.goodput:.2f}",
        f"{one.tokens_per_s:.1f}",
        one.text[-text_width:],
    ]
    return [Text(printable(cell)) for cell in cells]
