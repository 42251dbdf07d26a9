"""Shows on standard error how the runs come on, and in the end the answers."""

import asyncio
import sys
from collections.abc import Sequence

from goodspeed.app.demo.answers import Answer
from goodspeed.app.demo.options import shown

REFRESH_S = 0.125


def safe(text: str) -> str:
    """Returns text with control and unprintable characters escaped as in a Python string."""
    return "".join(
        char if char.isprintable() or char in "\n\t\xa0\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    return safe(" ".join(text[:500].split()))


class View:
    """Shows the demo in lines; on a terminal the line of the present run changes in place."""

    def say(self, text: str) -> None:
        print(safe(text), file=sys.stderr, flush=True)

    async def watch(self, title: str, answers: Sequence[Answer]) -> None:
        """Shows how far the answers are, until cancelled."""
        try:
            while True:
                if sys.stderr.isatty():
                    print(f"{title}: {_rate(answers)} ", end="\r", file=sys.stderr, flush=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            self.say(f"{title}: {_rate(answers)}")

    def show(self, answers: Sequence[Answer]) -> None:
        """Shows the finished answers."""
        for one in answers:
            told = f"{len(one.token_ids)} tokens, {one.tokens_per_s:.0f}/s"
            self.say(f"{one_line(one.client.domain)}, {shown(one.client.draft_model)}: {told}\n{one.text.strip()}\n")


def _rate(answers: Sequence[Answer]) -> str:
    num_tokens, elapsed_s = sum(len(one.token_ids) for one in answers), max(one.elapsed_s for one in answers)
    return f"{num_tokens} tokens, {num_tokens / elapsed_s if elapsed_s else 0.0:.0f}/s"
