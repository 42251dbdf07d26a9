"""Measures the time of forward passes on this device by tokens, sessions and context.

Measures the forward pass alone; a `Refined` model learns the time of sampling and verification from real rounds. As in
verification, the passes compute logits for every token.
"""

import contextlib
import platform
import random
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch

from goodspeed.engine.base import Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.fair.fit import fit_roofline, r_squared
from goodspeed.fair.round_time import Roofline, Sample
from goodspeed.serving.measuring.recording import versions

QUANTILE = 0.25
"""Quantile of a shape's repeated times that is reported: other processes can only slow a pass down."""

SETUP_SHARE = 0.3
"""Share of the time for prefilling contexts; contexts not prefilled by then are not measured."""

MIN_SHAPES = 8
"""Fewest shapes to measure, even after the time is up: fewer do not determine four coefficients."""

PROBE_TOKENS = 16
LONGEST_SHARE = 0.1
"""Largest share of the time for one pass; longer shapes are skipped."""

LONGEST_DRAFT = 32
"""Most tokens per session in a pass with context. Longer chunks are prompts: their attention grows with tokens times
context, so they are measured without context."""

ALWAYS_TRUSTED = 64
"""Tokens of a pass for which the model is trusted in any case; a slow device measures only smaller passes."""


@dataclass(frozen=True)
class Grid:
    """The shapes to measure: numbers of sessions, tokens per session (powers of 4), and contexts."""

    max_tokens: int  # per pass, over all sessions
    max_context: int  # per session
    max_sessions: int = 16
    session_step: int = 2  # numbers of sessions are its powers
    num_contexts: int = 3  # in addition to 0: max_context, then each a quarter of the previous


@dataclass(frozen=True, order=True)
class Shape:
    """The shape of a forward pass over equal sessions."""

    num_sessions: int
    num_tokens: int  # per session
    context: int  # cached tokens per session

    @property
    def all_tokens(self) -> int:
        return self.num_sessions * self.num_tokens

    def context_read(self, per_row: bool) -> int:
        """Returns the cached tokens that the pass reads. per_row: `Engine.reads_per_row`."""
        return self.context * (self.all_tokens if per_row else self.num_sessions)


@dataclass(frozen=True)
class Measured:
    """The result of a measurement."""

    samples: list[Sample]  # one per shape: the low quantile of its times
    num_passes: int
    wall_s: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Measured forward passes of one model on one device, and the model of their time fitted to them."""

    model: str
    device: str  # cpu or cuda
    hardware: str  # name of the processor
    engine: str
    dtype: str  # of the forward pass: "int8" with 8-bit activations
    threads: int  # of the CPU
    versions: dict[str, str]
    num_passes: int
    wall_s: float
    samples: list[Sample]
    roofline: Roofline
    roofline_r2: float

    @property
    def where(self) -> str:
        """Says for people what was measured."""
        return f"{self.model} on {self.hardware}, {self.dtype} by {self.engine}, --threads {self.threads}"

    @property
    def trusted_tokens(self) -> int:
        """Tokens of the largest forward pass for which the model is trusted."""
        return max(ALWAYS_TRUSTED, *(sample.num_tokens for sample in self.samples))


def profile(engine: Engine, grid: Grid, seconds: float, *, threads: int) -> Profile:
    """Measures for about `seconds` and fits the roofline. threads: those that the model was loaded with."""
    measured, checkpoint = measure(engine, grid, seconds), engine.checkpoint
    device = checkpoint.device
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    roofline = fit_roofline(measured.samples).with_least(engine.least_rows)
    return Profile(
        model=checkpoint.name,
        device=device.type,
        hardware=hardware if checkpoint.num_ranks == 1 else f"{checkpoint.num_ranks} x {hardware}",
        engine=checkpoint.engine,
        dtype=checkpoint.precision,
        threads=threads,
        versions=versions(),
        num_passes=measured.num_passes,
        wall_s=measured.wall_s,
        samples=measured.samples,
        roofline=roofline,
        roofline_r2=r_squared(roofline, measured.samples),
    )


def measure(engine: Engine, grid: Grid, seconds: float, *, clock: Callable[[], float] = time.perf_counter) -> Measured:
    """Measures for about `seconds`, then frees its KV pages. Skips shapes that do not fit into the pool."""
    started = clock()
    passes = _Passes(engine, clock, grid.max_sessions)
    try:
        longest = passes.longest(grid.max_tokens, LONGEST_SHARE * seconds)
        passes.fill(_contexts(grid)[1:], grid, started + SETUP_SHARE * seconds)
        shapes = [shape for shape in _shapes(grid, longest) if passes.can_run(shape)]
        times = _sweep(passes, shapes, started + seconds, random.Random(0))
    finally:
        passes.free()
    samples = [
        Sample(
            max(shape.all_tokens, engine.least_rows),
            shape.num_sessions,
            shape.context_read(engine.reads_per_row),
            float(np.quantile(times[shape], QUANTILE, method="lower")),
        )
        for shape in sorted(times)
    ]
    return Measured(samples, sum(map(len, times.values())), clock() - started)


class _Passes:
    """Runs forward passes over sessions of several context lengths, and truncates the sessions after each pass."""

    def __init__(self, engine: Engine, clock: Callable[[], float], max_sessions: int) -> None:
        self.engine = engine
        self.clock = clock
        self._keys: dict[int, list[Hashable]] = defaultdict(list)  # by context
        self._keys[0] = [object() for _ in range(max_sessions)]

    def longest(self, max_tokens: int, longest_s: float) -> int:
        """Returns the tokens of a pass of about longest_s seconds, extrapolated from small warm-up passes."""
        pool = self.engine.pool
        num_tokens = min(PROBE_TOKENS, max_tokens, self.engine.checkpoint.context_len, pool.num_free * pool.page_size)
        took = min(self.time(Shape(1, num_tokens, 0)) for _ in range(3))
        return min(max_tokens, max(num_tokens, int(num_tokens * longest_s / took)))

    def fill(self, contexts: Sequence[int], grid: Grid, until: float) -> None:
        """Prefills sessions of each context until the time `until`; reserves half of the free pages for the passes."""
        pool = self.engine.pool
        spare = pool.num_free // 2
        for _ in range(grid.max_sessions):
            for context in contexts:
                if context >= self.engine.checkpoint.context_len:
                    continue
                if self.clock() >= until or pool.num_free - -(-context // pool.page_size) < spare:
                    return
                key = object()
                self._keys[context].append(key)
                for start in range(0, context, grid.max_tokens):
                    self.engine.forward([Chunk(key, self._tokens(min(grid.max_tokens, context - start)), 0)])

    def can_run(self, shape: Shape) -> bool:
        keys, pool = self._keys[shape.context][: shape.num_sessions], self.engine.pool
        num_pages = sum(pool.pages_needed(key, shape.num_tokens) for key in keys)
        fits = shape.context + shape.num_tokens <= self.engine.checkpoint.context_len
        return len(keys) == shape.num_sessions and num_pages <= pool.num_free and fits

    def time(self, shape: Shape) -> float:
        """Runs one pass; returns its time in seconds."""
        keys = self._keys[shape.context][: shape.num_sessions]
        chunks = [Chunk(key, self._tokens(shape.num_tokens), shape.num_tokens) for key in keys]
        self._wait()
        started = self.clock()
        self.engine.forward(chunks)
        self._wait()
        took = self.clock() - started
        for key in keys:
            self.engine.pool.truncate(key, shape.context)
        return took

    def free(self) -> None:
        for keys in self._keys.values():
            for key in keys:
                self.engine.pool.free(key)

    def _tokens(self, num_tokens: int) -> list[int]:
        """Returns arbitrary token ids: the time does not depend on them."""
        return [position % self.engine.checkpoint.num_tokens for position in range(num_tokens)]

    def _wait(self) -> None:
        if self.engine.checkpoint.device.type == "cuda":
            torch.cuda.synchronize(self.engine.checkpoint.device)


def _sweep(passes: _Passes, shapes: Sequence[Shape], until: float, order: random.Random) -> dict[Shape, list[float]]:
    """Times all shapes repeatedly, in random order, so that a slow moment does not always hit the same shape.

    If a change of size takes time, sizes ascend, since those that fall get spare rows. Passes that compute more than
    their own rows are not counted.
    """
    times: dict[Shape, list[float]] = defaultdict(list)
    changes_cost = passes.engine.change_rows > 0.0
    while True:
        sweep = order.sample(shapes, len(shapes))
        for shape in sorted(sweep, key=lambda shape: shape.all_tokens) if changes_cost else sweep:
            if passes.clock() >= until and len(times) >= min(MIN_SHAPES, len(shapes)):
                return times
            took = passes.time(shape)
            own = max(shape.all_tokens, passes.engine.least_rows)
            while passes.engine.computed not in (None, own) and passes.clock() < until:
                took = passes.time(shape)
            times[shape].append(took)


def _shapes(grid: Grid, longest: int) -> list[Shape]:
    return [
        Shape(num_sessions, num_tokens, context)
        for context in _contexts(grid)
        for num_sessions in _powers(grid.session_step, grid.max_sessions)
        for num_tokens in _powers(4, longest // num_sessions)
        if not context or num_tokens <= LONGEST_DRAFT
    ]


def _contexts(grid: Grid) -> list[int]:
    contexts = [grid.max_context // 4**power for power in range(grid.num_contexts)]
    return [0, *sorted(context for context in contexts if context)]


def _powers(step: int, largest: int) -> list[int]:
    found = [1]
    while found[-1] * step <= largest:
        found.append(found[-1] * step)
    return found if largest >= 1 else []


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
