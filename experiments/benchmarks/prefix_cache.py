"""Gain and cost of keeping the prefixes of texts: the same requests with the prefix cache on and off.

Two pairs of nodes, each a verify node and a draft node with an HTTP face and two users' keys, take turns. Requests to
one of them turn the prefix cache off (`"goodspeed": {"prefix_cache": false}`). Measured are the first token of a chat's
second turn, whose first turn was read before; how quickly a text is written by itself, of a prompt that nobody has sent
before and of one that was read; choices of one prompt; and the first token of a prompt that another user has sent a
moment ago, which nothing may tell from one that nobody has sent. Medians over all repetitions, each with texts of its
own.

It takes about 2 minutes on two cores; about 50 s with --quick.
"""

import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from experiments.benchmarks.nodes.processes import START_S, free_port, http_nodes
from experiments.harness import benchmark
from goodspeed.embedded import prompts

KEYS = ("key-of-alice", "key-of-bob")
WANTED_FIRST_TOKEN, WANTED_STREAM = 0.2, 0.98  # with it over without: at most, and at least
NUM_CHOICES = 8


@dataclass(frozen=True)
class Sizes:
    """The number and length of requests."""

    repetitions: int
    prompt_tokens: int  # of a chat's first turn
    answer_tokens: int
    stream_tokens: int


FULL, QUICK = Sizes(3, 1_380, 100, 256), Sizes(1, 300, 20, 24)


@dataclass
class Streamed:
    """One answer as it came."""

    asked_at: float = field(default_factory=time.perf_counter)
    text: str = ""
    pieces_at: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def first_s(self) -> float:
        return self.pieces_at[0] - self.asked_at

    @property
    def tokens_per_s(self) -> float:
        """Speed of all tokens but the first."""
        return float(self.usage["completion_tokens"] - 1) / (self.pieces_at[-1] - self.pieces_at[0])

    @property
    def num_cached(self) -> int:
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])


@dataclass(frozen=True)
class Nodes:
    """A pair of nodes, by the addresses of their faces, and whether requests to it may use the prefix cache."""

    draft_url: str
    verify_url: str
    prefix_cache: bool

    def chat(self, messages: Sequence[tuple[str, str]], max_tokens: int, key: str = KEYS[0]) -> Streamed:
        """Streams the answer to messages that user and assistant wrote in turn."""
        body = {
            "messages": [{"role": role, "content": content} for role, content in messages],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "goodspeed": {"prefix_cache": self.prefix_cache},
        }
        found = Streamed()
        with self._post("/v1/chat/completions", body, key) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    _take(found, json.loads(line[6:]))
        return found

    def choices(self, text: str, number: int) -> tuple[float, int]:
        """Seconds until so many choices of one token are there, and the tokens that the verify node read for them."""
        before, started = self._num_read(), time.perf_counter()
        body = {"prompt": text, "max_tokens": 1, "n": number, "goodspeed": {"prefix_cache": self.prefix_cache}}
        with self._post("/v1/completions", body, KEYS[0]) as answer:
            answer.read()
        return time.perf_counter() - started, self._num_read() - before

    def num_tokens(self, text: str) -> int:
        with self._post("/tokenize", {"prompt": text}, KEYS[0]) as answer:
            return int(json.load(answer)["count"])

    def _num_read(self) -> int:
        """Tokens of texts that the verify node did not find in memory."""
        with urllib.request.urlopen(_request(f"{self.verify_url}/metrics"), timeout=START_S) as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
        names = [f"goodspeed_prefix_cache_{what}_total" for what in ("queries", "hits")]
        return int(float(lines[names[0]]) - float(lines[names[1]]))

    def _post(self, path: str, body: dict[str, Any], key: str) -> Any:
        request = _request(f"{self.draft_url}{path}", json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {key}")
        return urllib.request.urlopen(request, timeout=START_S)


def _request(url: str, body: bytes | None = None) -> urllib.request.Request:
    request = urllib.request.Request(url, body)
    request.add_header("Content-Type", "application/json")
    return request


def _take(found: Streamed, chunk: dict[str, Any]) -> None:
    if chunk.get("usage"):
        found.usage = chunk["usage"]
    if not chunk["choices"]:
        return
    content = chunk["choices"][0]["delta"].get("content")
    ends = chunk["choices"][0].get("finish_reason") is not None
    if content or (ends and not found.pieces_at):  # an answer of nothing but blanks has no content
        found.text += content or ""
        found.pieces_at.append(time.perf_counter())


def passage(nodes: Nodes, number: int, num_tokens: int) -> str:
    """A text of about so many tokens; two of them have nothing in common from their first page on."""
    lines = [one.prompt for one in prompts.load()]
    text = f"{number} is the number of this text."
    while (short := num_tokens - nodes.num_tokens(text)) > 0:
        line = lines[number % len(lines)]
        number += 1
        text += "\n" + line[: 4 * short]
    return text


class Bench:
    """Both pairs of nodes in turn, with everything that was measured of each."""

    def __init__(self, pairs: dict[str, Nodes], sizes: Sizes) -> None:
        self.pairs = pairs
        self.sizes = sizes
        self.found: dict[str, dict[str, list[float]]] = {way: {} for way in pairs}
        self._num_texts = 0

    def run(self, repetition: int) -> None:
        """Everything once, on each pair; every second time the other one first."""
        texts = [self._text() for _ in range(5)]
        ways = list(self.pairs)
        for way in ways if repetition % 2 else ways[::-1]:
            for name, value in self._measure(self.pairs[way], texts).items():
                self.found[way].setdefault(name, []).append(value)

    def _text(self) -> str:
        self._num_texts += 1
        return passage(next(iter(self.pairs.values())), 100 * self._num_texts, self.sizes.prompt_tokens)

    def _measure(self, nodes: Nodes, texts: Sequence[str]) -> dict[str, float]:
        sizes = self.sizes
        first = nodes.chat([("user", texts[0])], sizes.answer_tokens)
        turn = [("user", texts[0]), ("assistant", first.text.strip()), ("user", "And what follows from that?")]
        second = nodes.chat(turn, sizes.answer_tokens)
        fresh = nodes.chat([("user", texts[1])], sizes.stream_tokens)
        again = nodes.chat([("user", texts[1])], sizes.stream_tokens)
        nodes.chat([("user", texts[2])], 1)
        other = nodes.chat([("user", texts[2])], 1, KEYS[1])
        unknown = nodes.chat([("user", texts[3])], 1, KEYS[1])
        seconds, num_read = nodes.choices(texts[4], NUM_CHOICES)
        return {
            "first_turn_s": first.first_s,
            "second_turn_s": second.first_s,
            "second_turn_tokens": second.usage["prompt_tokens"],
            "second_turn_cached": second.num_cached,
            "fresh_tokens_per_s": fresh.tokens_per_s,
            "again_tokens_per_s": again.tokens_per_s,
            "other_key_s": other.first_s,
            "other_key_cached": other.num_cached,
            "unknown_s": unknown.first_s,
            "choices_s": seconds,
            "choices_read": num_read,
        }

    def medians(self) -> dict[str, dict[str, float]]:
        return {way: {name: median(values) for name, values in found.items()} for way, found in self.found.items()}


def summary(on: dict[str, float], off: dict[str, float]) -> dict[str, float]:
    """Ratios of what is measured with it to what is measured without."""
    return {
        "first_token": on["second_turn_s"] / off["second_turn_s"],
        "stream": on["fresh_tokens_per_s"] / off["fresh_tokens_per_s"],
        "stream_after_hit": on["again_tokens_per_s"] / off["again_tokens_per_s"],
        "choices": on["choices_s"] / off["choices_s"],
        "choices_read": on["choices_read"] / off["choices_read"],
        "other_key": on["other_key_s"] / on["unknown_s"],
    }


async def measure(sizes: Sizes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        keys.write_text("\n".join(KEYS), "utf-8")
        async with start(keys, prefix_cache=False) as off, start(keys, prefix_cache=True) as on:
            return await asyncio.to_thread(play, {"off": off, "on": on}, sizes)


@asynccontextmanager
async def start(keys: Path, *, prefix_cache: bool) -> AsyncIterator[Nodes]:
    draft, port = ["--model=tiny-draft-s", f"--api-key={keys}", "--history=off"], free_port()
    async with http_nodes([draft], f"--http=127.0.0.1:{port}") as nodes:
        yield Nodes(nodes.urls[0].rstrip("/"), f"http://127.0.0.1:{port}", prefix_cache)


def play(pairs: dict[str, Nodes], sizes: Sizes) -> dict[str, Any]:
    bench = Bench(pairs, sizes)
    for nodes in pairs.values():
        nodes.chat([("user", "Hello.")], 8)  # warms everybody up
    for repetition in range(sizes.repetitions):
        bench.run(repetition)
        print(f"{repetition + 1} of {sizes.repetitions} repetitions", file=sys.stderr)
    found = bench.medians()
    return {**found, "ratios": summary(found["on"], found["off"]), "repetitions": sizes.repetitions}


def table(found: dict[str, Any]) -> str:
    on, off, ratios = found["on"], found["off"], found["ratios"]
    cached = f"{on['second_turn_cached']:.0f} of {on['second_turn_tokens']:.0f} tokens in memory"
    return "\n".join(
        [
            f"first token of a second turn: {1e3 * on['second_turn_s']:.0f} ms, without "
            f"{1e3 * off['second_turn_s']:.0f} ({ratios['first_token']:.2f}; wanted {WANTED_FIRST_TOKEN:g}; {cached})",
            f"tokens/s of one stream: {on['fresh_tokens_per_s']:.0f}, without {off['fresh_tokens_per_s']:.0f} "
            f"({ratios['stream']:.3f}; wanted {WANTED_STREAM:g})",
            f"    of a prompt that was read: {on['again_tokens_per_s']:.0f}, without {off['again_tokens_per_s']:.0f} "
            f"({ratios['stream_after_hit']:.3f})",
            f"{NUM_CHOICES} choices of one prompt: {on['choices_s']:.2f} s and {on['choices_read']:.0f} tokens read, "
            f"without {off['choices_s']:.2f} s and {off['choices_read']:.0f}",
            f"first token of what another user has sent: {1e3 * on['other_key_s']:.0f} ms, of what nobody has "
            f"{1e3 * on['unknown_s']:.0f} ({ratios['other_key']:.2f}; {on['other_key_cached']:.0f} tokens in memory)",
        ]
    )


def main() -> int:
    options = benchmark.parser("prefix_cache", __doc__, "shorter texts, once").parse_args()
    found = asyncio.run(measure(QUICK if options.quick else FULL))
    benchmark.say(options, table(found))
    wanted = {"first_token": WANTED_FIRST_TOKEN, "stream": WANTED_STREAM}
    benchmark.report(options, {"benchmark": "prefix_cache", **found, "wanted": wanted})
    return 0


if __name__ == "__main__":
    sys.exit(main())
