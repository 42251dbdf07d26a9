"""Tokens a round at equal draft time: a drafted chain, alternatives beside it, and drafts behind those (beams).

The embedded target writes texts from held-out prompts; under match they are the same whatever is drafted. Each is
replayed against the real `DraftTree` tree and `Drafter` of a draft node on a clock of its own: a step takes the median
CPU time on this machine of one in that mode with as many rows, a round as long as ROUND_STEPS steps of the chain. As in
a draft node, these times choose the leaves (`widths.py`). The draft model works all the time. A round verifies the
likeliest BUDGET nodes of what was drafted for the text by its beginning; the draft node learns the result at its end,
when the next round begins. *empty after wrong* is the share of the rounds after a wrong first
choice that have nothing to verify.

It takes about 4 minutes on one core; about 10 s with --quick.
"""

import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import torch
from msgspec.structs import replace

from draft_node.core.drafts.draft_tree import DraftTree
from draft_node.core.generation import Generation
from experiments.harness import benchmark
from experiments.simulation.texts.target_texts import TargetText, grouped, write, written_logits
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.tree import Nodes
from goodspeed.drafting.widths import MAX_WIDTH, Widths
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.runner import Runner
from goodspeed.exact import trees
from goodspeed.exact.noise import match_noise
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.messages import Sampling

TEMPERATURES = (0.0, 1.0)
MODEL = "tiny-draft-s"
MODES = ("chain", "siblings", "beams")
PER_DOMAIN, NUM_TOKENS = 8, 150
ROUND_STEPS = 8
PERMITTED, BUDGET, LEAST_PROBABILITY = 8, 8, 0.1
DOUBTFUL = (0.54, 0.7)
"""Acceptance of the groups of texts for which trees are made; `all` has the others, too."""


@dataclass
class Replay:
    """The rounds of one mode."""

    num_tokens: int = 0
    num_rounds: int = 0
    num_after_wrong: int = 0  # rounds after a wrong first choice
    num_empty: int = 0  # of these, without a draft

    @property
    def tokens_a_round(self) -> float:
        return self.num_tokens / max(1, self.num_rounds)

    @property
    def empty_after_wrong(self) -> float:
        return self.num_empty / max(1, self.num_after_wrong)


class Drafting:
    """A draft node's tree and model for one text, on a clock of steps."""

    def __init__(self, drafter: Drafter, clock: "Clock", text: TargetText, number: int, mode: str) -> None:
        sampling = Sampling(text.sampling.temperature, seed=text.sampling.seed)
        room = len(text.written) + PERMITTED + 1
        self.request = Generation(number.to_bytes(16, "little"), tuple(text.prompt), sampling, room)
        self.drafter, self.clock, self.mode = drafter, clock, mode
        drafter.widths = clock
        self.tree = DraftTree(self.request)
        self.text: tuple[int, ...] = self.request.prompt
        self.seconds: dict[int, list[float]] = defaultdict(list)  # of the steps, by their rows' bit length
        self._round = 0
        self.tree.begin(len(self.text))

    def learn(self, text: tuple[int, ...]) -> None:
        """Takes a longer text, and asks for more of the tree."""
        self.text = text
        if not self.tree.follows(text):
            self.tree.begin(len(text))
        self._ask()

    def step(self) -> float:
        """Runs one step, if there is anything to draft. Returns the seconds that it takes on the clock."""
        self.clock.num_rows = 1
        if self.drafter.busy:
            began = time.thread_time()
            done = self.drafter.step()
            self.seconds[self.clock.num_rows.bit_length()].append(time.thread_time() - began)
            answers = [one for one in done if one.round == self._round]
            if answers and self.tree.extend(answers[0]) and answers[0].tokens:
                self._ask()
        return self.clock.step_s

    def _ask(self) -> None:
        wanted = self.tree.ask(self.text, PERMITTED, LEAST_PROBABILITY, epoch=1, number=self._round + 1)
        if wanted is not None:
            self._round += 1
            self.drafter.add(replace(wanted, wants_alternatives=self.mode != "chain"))


def replay(text: TargetText, drafting: Drafting, round_s: float) -> Replay:
    """Replays a text on the clock, with rounds of round_s."""
    whole, found = (*text.prompt, *text.written), Replay()
    drafting.learn(drafting.text)
    now, was_wrong = 0.0, False
    while len(drafting.text) < len(whole):
        nodes = drafting.tree.rest(drafting.text)
        accepted = _accepted(nodes, whole[len(drafting.text) :])
        found.num_rounds += 1
        found.num_after_wrong += was_wrong
        found.num_empty += was_wrong and not nodes.tokens
        chain = [nodes.tokens[node] for node in trees.first_choices(nodes.parents)]
        new = whole[len(drafting.text) : len(drafting.text) + accepted + 1]
        found.num_tokens += len(new)
        was_wrong = bool(chain) and tuple(chain[: len(new)]) != new[: len(chain)]
        now += round_s
        while now > 0:
            now -= drafting.step()
        drafting.learn((*drafting.text, *new))
    return found


def _accepted(nodes: Nodes, text: Sequence[int]) -> int:
    """Returns how many tokens of the text are a way through the BUDGET likeliest nodes of the tree."""
    at, length, likely = trees.BASE, 0, nodes.path_probabilities
    chosen = sorted(range(len(nodes.tokens)), key=likely.__getitem__, reverse=True)[:BUDGET]
    children = {(nodes.parents[node], nodes.tokens[node]): node for node in chosen}
    while length < len(text) - 1 and (at, text[length]) in children:
        at = children[at, text[length]]
        length += 1
    return length


def measure(texts: Sequence[TargetText]) -> tuple[list[dict[str, Any]], dict[str, dict[int, float]]]:
    """Returns a row of each domain and temperature, and by mode the seconds of a step by its rows' bit length."""
    checkpoint = checkpoints.load(MODEL)
    first = dict(zip(map(id, texts), firsts(checkpoint, texts), strict=True))
    drafter = Drafter(checkpoint, Runner(checkpoint, num_pages=1024))
    step_s = {mode: _step_s(drafter, mode, texts) for mode in MODES}
    clocks = {mode: Clock(step_s[mode], _max_width(mode)) for mode in MODES}
    rows: list[dict[str, Any]] = []
    for group in grouped(texts):
        found: dict[str, Replay] = defaultdict(Replay)
        for number, text in enumerate(group):
            for mode in MODES:
                drafting = Drafting(drafter, clocks[mode], text, number, mode)
                one = replay(text, drafting, ROUND_STEPS * step_s["chain"][1])
                drafter.forget(drafting.request.session_id)
                found[mode].num_tokens += one.num_tokens
                found[mode].num_rounds += one.num_rounds
                found[mode].num_after_wrong += one.num_after_wrong
                found[mode].num_empty += one.num_empty
        rows.append(
            {
                "domain": group[0].domain,
                "temperature": group[0].sampling.temperature,
                "acceptance": mean(is_first for text in group for is_first in first[id(text)]),
                "tokens_a_round": {mode: found[mode].tokens_a_round for mode in MODES},
                "empty_after_wrong": {mode: found[mode].empty_after_wrong for mode in MODES},
            }
        )
    return rows, step_s


@torch.inference_mode()
def firsts(drafter: Checkpoint, texts: Sequence[TargetText]) -> Iterator[list[bool]]:
    """Yields for each written token of each text whether it is the drafter's first choice after the target's text."""
    for text, logits in zip(texts, written_logits(drafter, texts), strict=True):
        scores = logits[:, : drafter.num_tokens]
        if text.sampling.temperature:
            batch = SamplingBatch.of([text.sampling] * len(logits))
            positions = torch.arange(len(text.prompt), len(text.prompt) + len(logits))
            probs = to_probs(logits, batch, num_tokens=drafter.num_tokens)
            scores = probs / match_noise(batch.seeds, positions, drafter.num_tokens)
        yield (scores.argmax(1) == torch.tensor(text.written)).tolist()


class Clock(Widths):
    """Chooses by times that were measured before, so that runs are repeatable."""

    def __init__(self, seconds: dict[int, float], max_width: int) -> None:
        super().__init__(max_width)
        self._seconds = seconds
        self.num_rows = 1  # of the latest step

    @property
    def step_s(self) -> float:
        """Returns the seconds of the latest step. One that feeds a prompt takes as long as the longest."""
        return self._seconds.get(self.num_rows.bit_length(), max(self._seconds.values()))

    def observe(self, num_rows: int, seconds: float) -> None:
        self.num_rows = num_rows


class Widest(Clock):
    """The same width in every step, for measuring."""

    def choose(self, jobs: Sequence[Sequence[float]]) -> int:
        return self.max_width


def _max_width(mode: str) -> int:
    return MAX_WIDTH if mode == "beams" else 1


def _step_s(drafter: Drafter, mode: str, texts: Sequence[TargetText]) -> dict[int, float]:
    """Returns the median seconds of a step on the first texts, by its rows' bit length."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for number, text in enumerate(texts[:8]):
        drafting = Drafting(drafter, Widest({1: 1.0}, _max_width(mode)), text, number, mode)
        replay(text, drafting, ROUND_STEPS)
        drafter.forget(drafting.request.session_id)
        for key, found in drafting.seconds.items():
            seconds[key] += found
    return {key: median(found) for key, found in sorted(seconds.items()) if key <= _max_width(mode).bit_length()}


def means(rows: Sequence[dict[str, Any]], least: float, most: float) -> dict[str, Any]:
    """Returns the means over the groups of texts whose acceptance is between these."""
    chosen = [row for row in rows if least <= row["acceptance"] <= most]
    return {
        key: {mode: mean(row[key][mode] for row in chosen) if chosen else None for mode in MODES}
        for key in ("tokens_a_round", "empty_after_wrong")
    } | {"num_groups": len(chosen)}


def show(options: Namespace, rows: Sequence[dict[str, Any]]) -> None:
    benchmark.say(
        options, f"{'':<20}{'T':>4}{'accepts':>9}" + "".join(f"{mode:>10}" for mode in MODES) + "   empty after wrong"
    )
    for row in rows:
        tokens, empty = row["tokens_a_round"], row["empty_after_wrong"]
        benchmark.say(
            options,
            f"{row['domain']:<20}{row['temperature']:>4g}{row['acceptance']:>9.2f}"
            + "".join(f"{tokens[mode]:>10.2f}" for mode in MODES)
            + "   "
            + " ".join(f"{empty[mode]:.2f}" for mode in MODES),
        )


def main() -> int:
    options = benchmark.parser("trees", __doc__, "one short text of each domain").parse_args()
    torch.set_num_threads(1)
    texts = [
        text for text in write(TEMPERATURES, *((1, 20) if options.quick else (PER_DOMAIN, NUM_TOKENS))) if text.written
    ]
    rows, step_s = measure(texts)
    show(options, rows)
    found = {"doubtful": means(rows, *DOUBTFUL), "all": means(rows, 0.0, 1.0)}
    benchmark.say(
        options,
        found,
        {mode: [f"{1e3 * each:.2f}" for each in by_rows.values()] for mode, by_rows in step_s.items()},
        "ms",
    )
    benchmark.report(
        options, {"benchmark": "trees", "step_s": step_s, "rows": rows} | found["doubtful"] | {"all": found["all"]}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
