"""HTTP's share of the time per token: the same texts over HTTP and from the same process without it, in turn.

Used by `serving.py`. The overhead is the median of the pairs' own ratios: the two of a pair had the same machine around
them. CPU times are told beside the clock's: a busy machine changes them less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.benchmarks.nodes.http_load import BadAnswer, send_all
from experiments.benchmarks.nodes.serving_nodes import Nodes, Text


@dataclass(frozen=True)
class Took:
    """Seconds per token: of a stream by the clock, of all streams together by the processes' CPU time."""

    clock_s: float
    draft_cpu_s: float
    verify_cpu_s: float
    load_generator_cpu_s: float


async def over_http(nodes: Nodes, texts: Sequence[Text]) -> tuple[Took, list[str]]:
    """Times texts by the load generator's clock, from connecting to the last stream's end; BadAnswer if any broke."""
    before, began = cpu_times(nodes), time.perf_counter()
    sent = await send_all(nodes.addresses[-1:], [text.body() for text in texts])
    seconds = time.perf_counter() - began
    after = cpu_times(nodes)  # before anything is read: the streams are what is compared
    answers = [one.answer(text.max_tokens) for one, text in zip(sent, texts, strict=True)]
    return took(texts, seconds, before, after), [answer.text for answer in answers]


async def without_http(nodes: Nodes, texts: Sequence[Text]) -> tuple[Took, list[str]]:
    """Times the texts by the draft node's clock, from encoding the prompts to the last text's end."""
    before = cpu_times(nodes)
    direct = await nodes.direct(texts)
    after = cpu_times(nodes)
    if direct.num_tokens != sum(text.max_tokens for text in texts):
        raise BadAnswer(f"{direct.num_tokens} tokens came without HTTP")
    return took(texts, direct.seconds, before, after), direct.texts


def cpu_times(nodes: Nodes) -> tuple[float, float, float]:
    return (*nodes.cpu_s(), time.process_time())


def took(texts: Sequence[Text], seconds: float, before: Sequence[float], after: Sequence[float]) -> Took:
    num_tokens = sum(text.max_tokens for text in texts)
    draft, verify, own = ((b - a) / num_tokens for a, b in zip(before, after, strict=True))
    return Took(seconds * len(texts) / num_tokens, draft, verify, own)


async def compare(nodes: Nodes, texts: Sequence[Text], num_pairs: int) -> dict[str, Any]:
    """Compares the two ways in pairs that alternate in order; one more pair before them warms up."""
    pairs: list[tuple[Took, Took]] = []
    num_different = 0
    for number in range(num_pairs + 1):
        if number % 2:
            direct, its_texts = await without_http(nodes, texts)
            http, http_texts = await over_http(nodes, texts)
        else:
            http, http_texts = await over_http(nodes, texts)
            direct, its_texts = await without_http(nodes, texts)
        num_different += sum(one != other for one, other in zip(http_texts, its_texts, strict=True))
        pairs += [(http, direct)] if number else []
    http, direct = (median([pair[way] for pair in pairs]) for way in (0, 1))
    return {
        "http": asdict(http),
        "direct": asdict(direct),
        "http_overhead": statistics.median(one.clock_s / other.clock_s - 1 for one, other in pairs),
        "draft_cpu_overhead": http.draft_cpu_s / direct.draft_cpu_s - 1,
        "nodes_cpu_overhead": nodes_cpu_s(http) / nodes_cpu_s(direct) - 1,
        "num_different": num_different,
        "pairs": [[one.clock_s, other.clock_s] for one, other in pairs],
    }


def median(times: Sequence[Took]) -> Took:
    columns = zip(*(asdict(one).values() for one in times), strict=True)
    return Took(*map(statistics.median, columns))


def nodes_cpu_s(took: Took) -> float:
    return took.draft_cpu_s + took.verify_cpu_s
