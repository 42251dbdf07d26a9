"""Tokens per second of GoodSpeed beside other projects' engines: the same real model, chats and machine, one run.

Eight users ask one question each, by the model's chat template; an answer ends by itself, or after 160 tokens. They ask
one after the other (*1*) or all at once (*8*), at T = 0 and T = 1, with one core and with both. All ways are loaded
first, and take turns in every repetition, each time another one first; medians. A question of its own warms up. Nobody
has a prefix cache or a history: every repetition asks the same. docs/PERFORMANCE.md says what each way is.

Each rival runs in a process of its own, with the environment that `make peers` made for it or, where the project's own
is enough, with that, and is stopped while others have their turn. With one core the verify node has that core, and all
draft nodes another one. What cannot run here is told, with the reason: in the table, and as `missing` under --json.

The JSON object has `T=0` and `T=1`, and in them `tokens_per_s` by way, then "1" and "8"; `engine` (our engine alone /
genai), `ngram` (goodspeed_ngram / goodspeed), `ratio_1` and `ratio_8` (our best way / the best rival), and all of these
again with `_both` for both cores; None: not known. Those of the first temperature are there directly, too.

Engines write texts of different lengths, which makes those of eight at once differ. `--peers genai engine --no-ends`
compares the two engines at equal lengths. The target is SmolLM2-135M-Instruct; --target takes any that both nodes take,
and --gguf its file for the rivals. It takes about two hours and a half with all rivals; about 30 s with --quick.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from experiments.benchmarks.rivals import files
from experiments.benchmarks.rivals.catalogue import OWN_ENGINE, RIVALS
from experiments.benchmarks.rivals.files import Files
from experiments.benchmarks.rivals.ours import DRAFT, NGRAM, PLAIN, WAYS, ours
from experiments.benchmarks.rivals.results import WANTED, Turns, Way, summary, table
from experiments.benchmarks.rivals.running import RivalFailed, Running
from experiments.benchmarks.rivals.worker import Request, Settings
from experiments.harness import benchmark
from goodspeed.embedded.models import NAMES
from goodspeed.engine.model_files.finding import load_tokenizer
from goodspeed.engine.tokenizing.text import encode_chat
from goodspeed.errors import GoodSpeedError

QUESTIONS = (
    "Why do we see lightning before we hear the thunder?",
    "Explain in three sentences what a verb is.",
    "Write a Python function that returns the second largest number of a list.",
    "Translate into French: The museum opens at ten, and children pay nothing.",
    "A notebook costs 3 euros and a pen 2 euros. What do four notebooks and five pens cost?",
    "Write an SQL query for the names of all customers who ordered more than three times in 2025.",
    "My houseplant has yellow leaves. What should I check first?",
    "Write a short message that tells my team that the meeting is moved to Thursday afternoon.",
)
WARM_UP = "Name three kinds of birds that cannot fly."
WARM_UP_TOKENS = 32

SMOLLM2, SMOLLM2_DRAFT = "smollm2", "smollm2-draft"

AT_ONCE = {"1": 1, "8": 8}
CORES = {"one": "", "both": "_both"}
"""Numbers of cores, and the end of the names of their results."""

QUICK = ("transformers", "genai", "llama", OWN_ENGINE.way, PLAIN, NGRAM)
"""For all but genai the project's own environment is enough."""


@dataclass
class Bench:
    """A run of the benchmark, and what it has found so far."""

    options: argparse.Namespace
    target: Files
    draft: Files
    missing: dict[str, str] = field(default_factory=dict)  # by way, why it does not run
    versions: dict[str, str] = field(default_factory=dict)

    async def load(self, cores: list[int], cores_of_drafts: list[int], stack: AsyncExitStack) -> dict[str, Way]:
        """Returns all ways that can write with these cores; the stack ends their processes."""
        options, ways, num_at_once = self.options, dict[str, Way](), max(self.options.at_once.values())
        for rival in RIVALS:
            if rival.way not in options.peers or self._lacks(rival.way, rival.missing(self.draft)):
                continue
            benchmark.note(f"loading {rival.way}")
            of_draft = rival.model(self.draft) if rival.drafts == "model" else None
            settings = Settings(str(rival.model(self.target)), cores, num_at_once, rival.drafts, of_draft)
            try:
                running = await asyncio.to_thread(Running, rival, settings)
            except RivalFailed as error:
                self.missing[rival.way] = f"it cannot be loaded: {error}"
                continue
            stack.push_async_callback(asyncio.to_thread, running.end)
            ways[rival.way], self.versions[rival.way] = running.write, running.version
        own = [way for way in WAYS if way in options.peers]
        if own := [way for way in own if way != DRAFT or self.draft.name or not self._lacks(way, self.draft.missing)]:
            benchmark.note("starting our nodes")
            nodes = ours(own, options.target, self.draft, num_at_once, cores, cores_of_drafts)
            ways |= {way: one.write for way, one in (await stack.enter_async_context(nodes)).items()}
        return ways

    def _lacks(self, way: str, why: str | None) -> bool:
        if why is not None:
            self.missing[way] = why
        return why is not None

    async def run(self) -> dict[str, Any]:
        options, answers = self.options, requests(self.options)
        available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
        own, others = available[:1], available[1:2] or available[:1]
        nothing = {f"{name}{end}": value for end in CORES.values() for name, value in summary({}).items()}
        results = {f"T={temperature:g}": dict(nothing) for temperature in options.temperature}
        for which in options.cores:
            async with AsyncExitStack() as stack:
                both = available[:2], available[:2]
                ways = await self.load(*((own, others) if which == "one" else both), stack)
                for temperature in options.temperature:
                    turns = Turns(ways, self.missing, options.at_once)
                    request, warm_up = (replace(one, temperature=temperature) for one in answers)
                    await turns.measure(request, warm_up, options.repetitions)
                    found = summary(turns.rates)
                    show(options, which, temperature, turns, found)
                    found |= {"repetitions": turns.rates, "num_tokens": turns.num_tokens}
                    results[f"T={temperature:g}"] |= {f"{name}{CORES[which]}": found[name] for name in found}
        for way, why in self.missing.items():
            benchmark.say(options, f"missing: {way}: {why}")
        first = {name: results[f"T={options.temperature[0]:g}"][name] for name in nothing}
        return {"versions": self.versions, "missing": self.missing, "wanted": WANTED, **first, **results}


def requests(options: argparse.Namespace, questions: Sequence[str] = QUESTIONS) -> tuple[Request, Request]:
    """Returns a request for all answers, and one that warms up. More questions than there are begin again."""
    vocabulary = load_tokenizer(options.target)
    *prompts, warm_up = (
        encode_chat(vocabulary.tokenizer, [{"role": "user", "content": question}])
        for question in (*islice(cycle(questions), options.questions), WARM_UP)
    )
    seeds, ends = list(range(1, len(prompts) + 1)), [] if options.no_ends else list(vocabulary.eos_ids)
    request = Request(prompts, seeds, 1, 0.0, options.max_tokens, ends)
    num_at_once = max(options.at_once.values())
    few = min(WARM_UP_TOKENS, options.max_tokens)
    return request, replace(request, prompts=[warm_up] * num_at_once, seeds=[0] * num_at_once, max_tokens=few)


def show(options: argparse.Namespace, which: str, temperature: float, turns: Turns, found: dict[str, Any]) -> None:
    few = "" if options.at_once == AT_ONCE else f"; 8 at once are {options.at_once['8']} here"
    title = f"T={temperature:g}, {which} core{'s' * (which == 'both')}: tokens/s (median; lowest to highest){few}"
    for line in (title, *table(turns.rates, found, CORES[which])):
        benchmark.say(options, line)


def parse() -> argparse.Namespace:
    parser = benchmark.parser("peers", __doc__, "the tiny target, two short answers, and what needs no environment")
    names = [*(rival.way for rival in RIVALS), *WAYS]
    parser.add_argument("--target", default=SMOLLM2, metavar="NAME|FILE.gguf|FOLDER", help=f"default: {SMOLLM2}")
    parser.add_argument("--gguf", metavar="FILE", help="the same model for the rivals (default: the target's own file)")
    parser.add_argument(
        "--draft",
        metavar="NAME|FILE.gguf|FOLDER",
        help=f"draft model (default: of {SMOLLM2} {SMOLLM2_DRAFT}, else none)",
    )
    parser.add_argument("--peers", "--ways", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--cores", nargs="+", choices=CORES, default=list(CORES), help="default: one both")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0], help="default: 0 1")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--max-tokens", type=int, default=160, help="of an answer (default 160)")
    parser.add_argument("--no-ends", action="store_true", help="all answers have --max-tokens: for genai, engine")
    parser.set_defaults(questions=len(QUESTIONS), at_once=AT_ONCE)
    options = parser.parse_args()
    if options.quick:
        options.target = options.target if options.target != SMOLLM2 else NAMES[0]
        options.peers = options.peers if options.peers != names else QUICK
        options.cores, options.temperature = options.cores[:1], options.temperature[:1]
        options.repetitions, options.max_tokens, options.questions, options.at_once = 1, 8, 2, {"1": 1, "8": 2}
    if options.no_ends and not set(options.peers) <= {"genai", OWN_ENGINE.way}:
        parser.error("--no-ends is for --peers genai engine")
    if options.draft is None and options.target == SMOLLM2:
        options.draft = SMOLLM2_DRAFT
    return options


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        try:
            target = files.prepare(options.target, options.gguf, Path(folder))
            bench = Bench(options, target, files.prepare_draft(options.draft, Path(folder)))
            found = asyncio.run(bench.run())
        except GoodSpeedError as error:
            sys.exit(str(error))
    about = {name: getattr(options, name) for name in ("target", "gguf", "draft", "repetitions", "max_tokens")}
    benchmark.report(options, {"benchmark": "peers", **about, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
