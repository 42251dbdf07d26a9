"""Runs of a demo, made up."""

from typing import Any

from goodspeed.app.demo.answers import ALONE, ORDER, Answer, Run, Way
from goodspeed.app.demo.options import Client
from goodspeed.serving.prompts import Prompt

WITH = {"drafted_by": {"model": 6, "ngram": 2, "self": 0}, "accepted_by": {"model": 4, "ngram": 1, "self": 0}}
COUNTS: dict[str, Any] = {"rounds": 5, "drafted": 8, "accepted": 5, **WITH}


def answer(domain: str, num_tokens: int, elapsed_s: float, rounds: int = 5, text: str = "yes") -> Answer:
    client = Client("client-1", 0, "folder/small", Prompt("why?", domain, 1))
    return Answer(client, text, [*range(num_tokens)], "stop", elapsed_s, COUNTS | {"rounds": rounds})


def runs(alone_s: float, drafts_s: float) -> list[Run]:
    """Returns four runs of two answers with 10 and 20 tokens; the second takes twice as long, the second run of a way
    three times."""
    made, seen = [], set[Way]()
    for way in ORDER:
        slow = 3.0 if way in seen else 1.0
        elapsed_s = slow * (alone_s if way == ALONE else drafts_s)
        made.append(Run(way, [answer("math", 10, elapsed_s), answer("sql", 20, 2 * elapsed_s, 20)], 2 * elapsed_s))
        seen.add(way)
    return made
