"""Tokens per second of GoodSpeed beside other projects' engines: the same real model, chats and machine, one run.

Eight users ask one question each, by the model's chat template; an answer ends by itself, or after 160 tokens. They ask
one after the other (*1*) or all at once (*8*), at T = 0 and T = 1, with one core and with both. All ways are loaded
first, and take turns in every repetition, each time another one first; medians. A question of its own warms up.

*transformers*: `generate`, alone, assisted, and with prompt lookup (the last two take no batches: eight streams in
turn). *genai*: OpenVINO GenAI, from the GGUF file as it is, alone, with prompt lookup, and with a draft model. *llama*:
llama.cpp's server, from the file as it is (also with a draft model) and from one in Q8_0; without a `llama-server`,
*xllamacpp* is the same server in a process of ours. *vllm*: vLLM for CPUs in bfloat16, alone and with n-grams. Each
rival runs in a process of its own, with the environment that `make peers` made for it, and is stopped while others have
their turn. *goodspeed*: a verify node and a draft node for each user, over HTTP: without drafts, with n-grams, and with
the draft model of --draft; with one core the verify node has that core, and all draft nodes another one. *engine*: the
verify node's engine alone. Nobody has a prefix cache or a history: every repetition asks the same.

What cannot run here is told, with the reason: in the table and as `missing` under --json. There, `T=0` and `T=1` have
`tokens_per_s` by way, then "1" and "8"; `engine` (the engine alone / genai, on one core), `ngram` (goodspeed_ngram /
goodspeed), `ratio_1` and `ratio_8` (our best way / the best rival), and all of these again with `_both` for both cores.

Engines write texts of different lengths, which makes those of eight at once differ. `--ways genai engine --no-ends`
compares the two engines at equal lengths.

The target is SmolLM2-135M-Instruct; --target takes any that both nodes take, and --gguf its file for the rivals. It
takes about two hours and a half with all rivals on two cores; about 30 s with --quick.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.benchmarks.rivals import catalogue, files
from experiments.benchmarks.rivals.catalogue import OWN_ENGINE, Rival
from experiments.benchmarks.rivals.files import SMOLLM2, Files
from experiments.benchmarks.rivals.ours import DRAFT, NGRAM, PLAIN, WAYS, ours
from experiments.benchmarks.rivals.results import WANTED, Turns, Way, summary, table
from experiments.benchmarks.rivals.running import RivalFailed, Running
from experiments.benchmarks.rivals.worker import Request, Settings
from experiments.harness import benchmark
from goodspeed.embedded.models import NAMES
from goodspeed.engine import sources
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

AT_ONCE = {"1": 1, "8": 8}
CORES = {"one": "", "both": "_both"}
"""How many cores, and the end of the names of their results."""

WARM_UP_TOKENS = 32
QUICK_WAYS = ("transformers", "genai", "xllamacpp", OWN_ENGINE.way, PLAIN, NGRAM)
"""For all but genai the project's own environment is enough."""

NO_DRAFT_MODEL = "it needs a draft model: --draft MODEL"


class Cast:
    """All that can write on some cores, loaded."""

    def __init__(self, options: argparse.Namespace, which: str, missing: dict[str, str]) -> None:
        """which: of CORES. missing: by way, why it cannot run; filled here."""
        available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
        self.options, self.missing = options, missing
        self.cores = available[:1] if which == "one" else available[:2]
        self.cores_of_drafts = available[1:2] or available[:1] if which == "one" else available[:2]
        self.ways: dict[str, Way] = {}
        self.versions: dict[str, str] = {}

    @asynccontextmanager
    async def on_stage(self, target: Files, draft: Files) -> AsyncIterator[dict[str, Way]]:
        """Yields the ways by name; ends all processes at the end."""
        async with AsyncExitStack() as stack:
            for rival in [*catalogue.rivals(self.options.llama_server), OWN_ENGINE]:
                if rival.way in self.options.ways:
                    await self._load(rival, target, draft, stack)
            await self._start_ours(stack)
            yield self.ways

    async def _load(self, rival: Rival, target: Files, draft: Files, stack: AsyncExitStack) -> None:
        if why := rival.missing(draft):
            self.missing[rival.way] = why
            return
        benchmark.note(f"loading {rival.way}")
        settings = Settings(
            model=self.options.target if rival is OWN_ENGINE else rival.model(target),
            drafts=rival.drafts,
            draft_model=rival.draft_model(draft),
            num_threads=len(self.cores),
            cores=self.cores,
            num_at_once=max(self.options.at_once.values()),
            program=rival.program,
        )
        try:
            running = await asyncio.to_thread(Running, rival, settings)
        except RivalFailed as error:
            self.missing[rival.way] = f"it cannot be loaded: {error}"
            return
        stack.push_async_callback(asyncio.to_thread, running.end)
        self.ways[rival.way], self.versions[rival.way] = running.write, running.version

    async def _start_ours(self, stack: AsyncExitStack) -> None:
        wanted = [way for way in WAYS if way in self.options.ways]
        if DRAFT in wanted and self.options.draft is None:
            self.missing[DRAFT] = NO_DRAFT_MODEL
            wanted.remove(DRAFT)
        if wanted:
            benchmark.note("starting our nodes")
            num_at_once = max(self.options.at_once.values())
            models = (self.options.target, self.options.draft)
            nodes = ours(wanted, *models, num_at_once, self.cores, self.cores_of_drafts)
            self.ways |= {way: one.write for way, one in (await stack.enter_async_context(nodes)).items()}


def requests(options: argparse.Namespace) -> tuple[Request, Request]:
    """Returns a request for all answers, and one that warms up."""
    vocabulary = sources.load_tokenizer(options.target)
    *prompts, warm_up = (
        encode_chat(vocabulary.tokenizer, [{"role": "user", "content": question}])
        for question in (*QUESTIONS[: options.questions], WARM_UP)
    )
    seeds, ends = list(range(1, len(prompts) + 1)), [] if options.no_ends else list(vocabulary.eos_ids)
    request = Request(prompts, seeds, 1, 0.0, options.max_tokens, ends)
    num_at_once = max(options.at_once.values())
    few = min(WARM_UP_TOKENS, options.max_tokens)
    return request, replace(request, prompts=[warm_up] * num_at_once, seeds=[0] * num_at_once, max_tokens=few)


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    target, draft = files.prepare(options.target, options.gguf, folder), files.prepare_draft(options.draft, folder)
    answers = requests(options)
    missing: dict[str, str] = {}
    results: dict[str, dict[str, Any]] = {f"T={temperature:g}": {} for temperature in options.temperature}
    versions: dict[str, str] = {}
    for which in options.cores:
        cast = Cast(options, which, missing)
        async with cast.on_stage(target, draft) as ways:
            versions |= cast.versions
            for temperature in options.temperature:
                turns = Turns(ways, missing, options.at_once)
                request, warm_up = (replace(one, temperature=temperature) for one in answers)
                await turns.measure(request, warm_up, options.repetitions)
                found = summary(turns.rates) | {"repetitions": turns.rates, "num_tokens": turns.num_tokens}
                results[f"T={temperature:g}"] |= {f"{name}{CORES[which]}": value for name, value in found.items()}
                show(options, which, temperature, turns)
    for way, why in missing.items():
        benchmark.say(options, f"missing: {way}: {why}")
    return {"versions": versions, "missing": missing, "wanted": WANTED, **results}


def show(options: argparse.Namespace, which: str, temperature: float, turns: Turns) -> None:
    few = "" if options.at_once == AT_ONCE else f"; 8 at once are {options.at_once['8']} here"
    title = f"T={temperature:g}, {which} core{'s' * (which == 'both')}: tokens/s (median; lowest to highest){few}"
    benchmark.say(options, title)
    for line in table(turns.rates, summary(turns.rates), CORES[which]):
        benchmark.say(options, line)


def parse() -> argparse.Namespace:
    parser = benchmark.parser("peers", __doc__, "the tiny target, two short answers, and what needs no environment")
    names = [*(rival.way for rival in catalogue.rivals(None)), OWN_ENGINE.way, *WAYS]
    parser.add_argument("--target", default=SMOLLM2, metavar="NAME|FILE.gguf|FOLDER", help=f"default: {SMOLLM2}")
    parser.add_argument("--gguf", metavar="FILE", help="the same model for the rivals (default: the target's own file)")
    parser.add_argument("--draft", metavar="NAME|FILE.gguf|FOLDER", help="draft model (default: none)")
    parser.add_argument(
        "--ways", nargs="+", choices=names, help="default: all, but xllamacpp only if there is no llama-server"
    )
    parser.add_argument("--cores", nargs="+", choices=CORES, default=list(CORES), help="default: one both")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0], help="default: 0 1")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--max-tokens", type=int, default=160, help="of an answer (default 160)")
    parser.add_argument("--no-ends", action="store_true", help="all answers have --max-tokens: for genai, engine")
    parser.add_argument("--llama-server", metavar="PATH", help="default: of .peers/llama, or on PATH")
    parser.set_defaults(questions=len(QUESTIONS), at_once=AT_ONCE)
    options = parser.parse_args()
    if options.quick:
        options.target = options.target if options.target != SMOLLM2 else NAMES[0]
        options.ways = options.ways or QUICK_WAYS
        options.cores, options.temperature = options.cores[:1], options.temperature[:1]
        options.repetitions, options.max_tokens, options.questions, options.at_once = 1, 8, 2, {"1": 1, "8": 2}
    if options.no_ends and not set(options.ways or names) <= {"genai", OWN_ENGINE.way}:
        parser.error("--no-ends is for --ways genai engine")
    options.llama_server = catalogue.llama_server(options.llama_server)
    options.ways = options.ways or [*catalogue.usual(options.llama_server), OWN_ENGINE.way, *WAYS]
    return options


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = asyncio.run(run(options, Path(folder)))
        except GoodSpeedError as error:
            sys.exit(str(error))
    about = {name: getattr(options, name) for name in ("target", "gguf", "draft", "repetitions", "max_tokens")}
    benchmark.report(options, {"benchmark": "peers", **about, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
