"""Shows a demo on standard error, line by line. Control characters in a node's text never reach the terminal."""

import asyncio
import sys
from collections.abc import Sequence

from goodspeed.app.demo.answers import Answer

LOOK_S = 0.125
"""Seconds between two looks at the answers."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def safe(text: str) -> str:
    """Returns text with control and unprintable characters escaped as in a Python string."""
    return "".join(
        char if char.isprintable() or char in "\n\t\xa0\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    return safe(" ".join(text[:500].split()))


async def watch(title: str, answers: Sequence[Answer], shows_texts: bool) -> None:
    """Shows the answers until cancelled. shows_texts: False if the same texts were shown before."""
    num_told = [0] * len(answers)  # characters of each text
    say(title)
    try:
        while shows_texts:
            _tell(answers, num_told)
            await asyncio.sleep(LOOK_S)
    finally:
        if shows_texts:
            _tell(answers, num_told)


def _tell(answers: Sequence[Answer], num_told: list[int]) -> None:
    """Prints the lines that are complete."""
    for index, one in enumerate(answers):
        new = one.text[num_told[index] :]
        if not one.finish_reason:
            new = new[: new.rfind("\n") + 1]
        num_told[index] += len(new)
        for line in filter(str.strip, new.split("\n")):
            say(f"{one_line(one.client.domain):>13} | {safe(line)}")
