"""Cost of constraints: compiling them, their masks, and a round of eight sessions with masks against one without.

Compiled are the 200 schemas of `tests/constraint/schemas`, and hostile constraints; each anew, by the clock of this
thread, and by the wall clock in a trial's process, which a hostile one may end: then the trial starts it again. Masks
are those of chains of four drafted tokens after every token of answers in the practice schemas.

The rounds are those of the embedded target: eight sessions that have written a part of such an answer verify the four
tokens that follow. Every round runs without forms; with them; and with masks that are made after the forward pass, not
by a thread beside it. `shares` are medians of what each adds to a round, as a share of the plain one; 3 % at most are
wanted. Masks need a core of their own: the target's threads are one less than there are.

It takes about a minute on two cores; about 15 s with --quick.
"""

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace

from experiments.benchmarks.load.constraints import HOSTILE, HOSTILE_ROWS, schemas
from experiments.harness import benchmark
from goodspeed.app import generation
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.trial import Trial
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.runner import Runner
from goodspeed.errors import ConstraintError
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Sampling
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry, Round

NUM_SESSIONS, NUM_DRAFTED = 8, 4
WANTED_SHARE, WANTED_COMPILE_S, WANTED_ROW_S = 0.03, 0.1, 0.004
PROMPT = "Answer in JSON: "
WAYS = ("plain", "forms", "masks after")


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


# -- compiling and masks -----------------------------------------------------------------------------------------------


def compiling(constraints: Constraints, trial: Trial) -> dict[str, Any]:
    """Compiling in this process by its clock of this thread, and whole trials by the wall clock.

    Hostile constraints are tried only, as a node does; those that pass are compiled here, too.
    """

    def attempt(constraint: Constraint) -> None:
        with contextlib.suppress(ConstraintError):
            constraints.get(constraint)

    start_s = seconds(lambda: trial.problem(Constraint("regex", "a")))
    times = [seconds(lambda one=one: attempt(one), time.thread_time) for one in schemas()]  # type: ignore[misc]
    tried = [seconds(lambda one=one: trial.problem(one)) for one in schemas()]  # type: ignore[misc]
    hostile, passed = dict[str, float](), dict[str, float]()
    for name, one in HOSTILE.items():
        started = time.perf_counter()
        problem = trial.problem(one)
        hostile[name] = time.perf_counter() - started
        if problem is None:
            passed[name] = seconds(lambda one=one: attempt(one), time.thread_time)  # type: ignore[misc]
    return {
        "num_schemas": len(times),
        "median_ms": 1e3 * statistics.median(times),
        "max_ms": 1e3 * max(times),
        "trial_start_s": start_s,
        "trial_median_ms": 1e3 * statistics.median(tried),
        "trial_max_ms": 1e3 * max(tried),
        "hostile_trial_ms": {name: 1e3 * each for name, each in hostile.items()},
        "hostile_ms": {name: 1e3 * each for name, each in passed.items()},
        "num_killed": trial.num_killed,
        "hostile_within": max(passed.values()) <= WANTED_COMPILE_S,
    }


def masks(constraints: Constraints, answers: Sequence[tuple[Constraint, list[int]]]) -> dict[str, Any]:
    times: list[float] = []
    for constraint, answer in answers:
        matcher = Matcher(constraints.get(constraint))
        for length in range(len(answer)):
            drafted = answer[length : length + NUM_DRAFTED]
            output = answer[:length]
            times.append(seconds(lambda: matcher.allowed(output, drafted)) / (len(drafted) + 1))  # noqa: B023
    return {"num_chains": len(times), "median_us": 1e6 * statistics.median(times), "max_us": 1e6 * max(times)}


def hostile_rows(constraints: Constraints) -> dict[str, Any]:
    """Seconds of this thread for the costliest row of each: masks after an output and a drafted token, and `forced`."""
    found: dict[str, float] = {}
    for name, constraint in HOSTILE_ROWS.items():
        compiled = constraints.compiled(constraint)
        if isinstance(compiled, ConstraintError):
            continue
        matcher, output, worst = Matcher(compiled), list[int](), 0.0
        for number in range(64):
            rows = matcher.allowed(output)
            tokens = np.flatnonzero(np.unpackbits(rows[0].view(np.uint8), bitorder="little")).tolist()
            tokens = [token for token in tokens if token not in constraints.table.eos_ids]
            if not tokens:
                break
            drafted = [tokens[number % len(tokens)]]
            worst = max(worst, seconds(lambda: matcher.allowed(output, drafted), time.thread_time) / 2)  # noqa: B023
            worst = max(worst, seconds(lambda: matcher.forced(output), time.thread_time))  # noqa: B023
            output += drafted
        found[name] = worst
    return {
        "row_ms": {name: 1e3 * each for name, each in found.items()},
        "within": max(found.values()) <= WANTED_ROW_S,
    }


def written(checkpoint: Checkpoint, constraints: Constraints) -> list[tuple[Constraint, list[int]]]:
    """Answers of the target to the practice schemas, at least as long as a draft."""
    prompt = checkpoint.tokenizer(PROMPT)["input_ids"]
    found: list[tuple[Constraint, list[int]]] = []
    for number, constraint in enumerate(schemas("practice")):
        matcher = Matcher(constraints.get(constraint))
        tokens = generation.generate(
            checkpoint,
            Runner(checkpoint, num_pages=32),
            prompt,
            Sampling(seed=number),
            120,
            checkpoint.eos_ids,
            matcher=matcher,
        )
        answer = list(tokens)
        if len(answer) > 4 * NUM_DRAFTED:
            found.append((constraint, answer))
    return found


# -- rounds ------------------------------------------------------------------------------------------------------------


class Stage:
    """Eight sessions in the middle of their answers, and the same round as often as wanted."""

    def __init__(
        self, checkpoint: Checkpoint, constraints: Constraints, answers: Sequence[tuple[Constraint, list[int]]]
    ):
        self.target = Target(checkpoint, Runner(checkpoint, num_pages=256), constraints=constraints)
        self.answers = [answers[number % len(answers)] for number in range(NUM_SESSIONS)]
        self.prompt = tuple(checkpoint.tokenizer(PROMPT)["input_ids"])
        self.eos_ids = checkpoint.eos_ids
        for number, (constraint, _) in enumerate(self.answers):
            constraints.hold(number.to_bytes(16, "big"), constraints.get(constraint))  # as an open session does

    def entry(self, number: int, at: int) -> Entry:
        """One session's part of the round after the first tokens of its answer."""
        constraint, answer = self.answers[number]
        length = at % (len(answer) - NUM_DRAFTED)
        text = (*self.prompt, *answer[:length])
        session_id = number.to_bytes(16, "big")
        start = self.target.runner.pool.length(session_id)
        return Entry(
            session_id=session_id,
            start=start,
            tokens=(*text[start:], *answer[length : length + NUM_DRAFTED]),
            num_drafted=NUM_DRAFTED,
            samples=True,
            sampling=Sampling(seed=number),
            stop_ids=self.eos_ids,
            constraint=constraint,
            prompt_len=len(self.prompt),
            text=text,
        )

    def rounds(self, at: int) -> dict[str, float]:
        """Seconds of the round by way; the sessions' texts are fed before, so that each verifies drafts only.

        The ways take turns at being first.
        """
        ways = dict(zip(WAYS, (self.plain, self.formed, self.after), strict=True))
        times: dict[str, float] = {}
        self.prepare(at)
        first = at % len(WAYS)
        for name in WAYS[first:] + WAYS[:first]:
            way = ways[name]
            entries = tuple(self.entry(number, at) for number in range(NUM_SESSIONS))
            lengths = {one.session_id: one.start for one in entries}
            times[name] = seconds(lambda way=way, entries=entries: way(entries))  # type: ignore[misc]
            for session_id, length in lengths.items():
                self.target.runner.truncate(session_id, length)
        return times

    def prepare(self, at: int) -> None:
        entries = [self.entry(number, at) for number in range(NUM_SESSIONS)]
        for one in entries:
            self.target.runner.truncate(one.session_id, min(one.start, len(one.text) - 1))
        whole = [replace(self.entry(number, at), num_drafted=0) for number in range(NUM_SESSIONS)]
        fed = [
            replace(one, tokens=one.text[one.start : -1], samples=False)
            for one in whole
            if one.start < len(one.text) - 1
        ]
        if fed:
            self.target.forward(Round(0, tuple(fed)))
        self.target.run(Round(0, tuple(self.entry(number, at) for number in range(NUM_SESSIONS))))  # matchers follow
        for one in entries:
            self.target.runner.truncate(one.session_id, len(one.text) - 1)

    def plain(self, entries: tuple[Entry, ...]) -> None:
        self.target.run(Round(1, tuple(replace(one, constraint=None, text=(), stop_ids=()) for one in entries)))

    def formed(self, entries: tuple[Entry, ...]) -> None:
        self.target.run(Round(1, entries))

    def after(self, entries: tuple[Entry, ...]) -> None:
        planned = Round(1, entries)
        self.target.verify(planned, self.target.forward(planned))


def rounds(stage: Stage, num_rounds: int) -> dict[str, Any]:
    times = [stage.rounds(at) for at in range(2, 2 + num_rounds)]
    median = {name: statistics.median(one[name] for one in times) for name in WAYS}
    shares = {name: statistics.median((one[name] - one["plain"]) / one["plain"] for one in times) for name in median}
    return {
        "num_sessions": NUM_SESSIONS,
        "num_drafted": NUM_DRAFTED,
        "num_rounds": num_rounds,
        "round_ms": {name: 1e3 * each for name, each in median.items()},
        "shares": {name: each for name, each in shares.items() if name != "plain"},
        "share_within": shares["forms"] <= WANTED_SHARE,
    }


def main() -> int:
    options = benchmark.parser("grammar", __doc__, "fewer rounds").parse_args()
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    checkpoint = checkpoints.load("tiny-target")
    trial = Trial(checkpoint)
    constraints = Constraints(checkpoint, trial)
    answers = written(checkpoint, constraints)
    result = {
        "benchmark": "grammar",
        "compiling": compiling(constraints, trial),
        "masks": masks(constraints, answers),
        "hostile": hostile_rows(constraints),
        "rounds": rounds(Stage(checkpoint, constraints, answers), 10 if options.quick else 200),
    }
    benchmark.say(options, table(result))
    benchmark.report(options, result)
    return 0


def table(result: dict[str, Any]) -> str:
    compiled, made, played = result["compiling"], result["masks"], result["rounds"]
    lines = [
        f"{compiled['num_schemas']} schemas: {compiled['median_ms']:.2f} ms, at most {compiled['max_ms']:.1f} ms",
        f"a trial: {compiled['trial_median_ms']:.1f} ms, at most {compiled['trial_max_ms']:.1f} ms; the first "
        f"{compiled['trial_start_s']:.2f} s; {compiled['num_killed']} hostile ones ended it",
        *(f"  {name:22} trial {each:8.1f} ms" for name, each in compiled["hostile_trial_ms"].items()),
        *(f"  {name:22} compiled here {each:8.1f} ms" for name, each in compiled["hostile_ms"].items()),
        f"a row's mask: {made['median_us']:.0f} us, at most {made['max_us']:.0f} us",
        "the costliest row of hostile forms:",
        *(f"  {name:30} {each:8.2f} ms" for name, each in result["hostile"]["row_ms"].items()),
        f"a round of {played['num_sessions']}: "
        + ", ".join(f"{name} {each:.2f} ms" for name, each in played["round_ms"].items()),
        "forms add " + ", ".join(f"{each:.1%} ({name})" for name, each in played["shares"].items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
