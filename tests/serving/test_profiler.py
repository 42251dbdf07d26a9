"""Measuring forward passes, on a microscopic model whose clock is ours."""

from contextlib import nullcontext

import pytest

from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.loading import try_model
from goodspeed.fair.fit import fit_roofline
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import Linear
from goodspeed.serving.measuring import profiler
from goodspeed.serving.measuring.profiler import Grid
from tests.micro import make_checkpoint

CHECKPOINT = make_checkpoint(1)
TRUTH = Linear(fixed_s=4e-3, token_s=2e-4, session_s=1e-4, context_s=3e-6)
GRID = Grid(64, 32, max_sessions=4)
FIRST_S = 0.05  # what the first pass takes on top: it warms up


class TimedEngine(TorchEngine):
    """Its passes take exactly what the truth says, by a clock that only they move."""

    def __init__(self, *, reads_per_row=False, **options):
        options = {"num_pages": 256, "page_size": 4} | options
        super().__init__(CHECKPOINT, try_model(CHECKPOINT, is_split=False), **options)
        self.now, self.extra_s, self.passes, self.fails_at = 0.0, FIRST_S, [], None
        self.reads_per_row = reads_per_row

    def forward(self, chunks):
        if len(self.passes) == self.fails_at:
            raise RuntimeError("out of memory")
        lengths = [len(chunk.tokens) for chunk in chunks]
        reads = [self.pool.length(chunk.key) * (len(chunk.tokens) if self.reads_per_row else 1) for chunk in chunks]
        counts = sum(lengths), len(chunks), sum(reads)
        logits = super().forward(chunks)
        self.now += TRUTH.round_s(*counts) + self.extra_s
        self.extra_s = 0.0
        self.passes.append(counts)
        return logits


def measure(engine, grid=GRID, seconds=1.0, **options):
    return profiler.measure(engine, grid, seconds, clock=lambda: engine.now, **options)


@pytest.mark.parametrize("reads_per_row", [False, True])
def test_what_is_measured_is_what_passes_take(reads_per_row):
    """Also where time is too short to fill the context of more than one session."""
    (fitted,) = fit_roofline(measure(TimedEngine(reads_per_row=reads_per_row)).samples, num_terms=1).terms
    assert fitted.coefficients == pytest.approx(TRUTH.coefficients, rel=1e-4)


def test_it_covers_tokens_sessions_and_context_within_the_grid():
    samples = measure(TimedEngine()).samples
    assert {sample.num_sessions for sample in samples} == {1, 2, 4}
    assert {sample.num_tokens for sample in samples} == {1, 2, 4, 8, 16, 32, 64}
    assert max(sample.num_tokens / sample.num_sessions for sample in samples if sample.context_tokens) == 16
    assert {sample.context_tokens // sample.num_sessions for sample in samples} == {0, 2, 8, 32}


def test_it_takes_about_its_time_and_repeats_every_shape():
    measured = measure(TimedEngine())
    assert 1.0 <= measured.wall_s < 1.0 + 0.03
    assert measured.num_passes > 2 * len(measured.samples)


def test_too_little_time_still_gives_a_few_shapes():
    measured = measure(TimedEngine(), Grid(64, 32, max_sessions=16), seconds=1e-3)
    assert len(measured.samples) == profiler.MIN_SHAPES
    assert max(sample.num_tokens for sample in measured.samples) <= 16


@pytest.mark.parametrize("fails_at", [None, 20])
def test_the_pool_is_left_as_it_was_also_when_a_pass_fails(fails_at):
    engine = TimedEngine()
    engine.pool.extend("somebody", 10)
    free, engine.fails_at = engine.pool.num_free, fails_at
    with nullcontext() if fails_at is None else pytest.raises(RuntimeError, match="out of memory"):
        measure(engine)
    assert engine.pool.num_free == free
    assert engine.pool.length("somebody") == 10


def test_a_small_pool_and_a_short_context_leave_shapes_out():
    samples = measure(TimedEngine(num_pages=6), GRID).samples
    assert max(sample.num_tokens + sample.context_tokens for sample in samples) <= 6 * 4
    samples = measure(TimedEngine(num_pages=2000), Grid(1000, 1000)).samples
    assert max((sample.num_tokens + sample.context_tokens) / sample.num_sessions for sample in samples) <= 128


def test_a_profile_says_on_what_it_was_measured():
    profile = profiler.profile(TimedEngine(), Grid(16, 0, max_sessions=2), 0.05, threads=3)
    assert (profile.model, profile.device, profile.engine, profile.dtype) == ("micro", "cpu", "torch", "float32")
    assert profile.hardware
    assert profile.threads == 3
    assert max(sample.num_tokens for sample in profile.samples) < profile.trusted_tokens == profiler.ALWAYS_TRUSTED
    assert Refined(profile.roofline).round_s(4, 1, 0) > 0


def test_a_pass_with_fewer_rows_than_its_engine_computes_takes_as_long_as_with_these():
    class Pairs(TimedEngine):
        least_rows, change_rows = 3, 1e-9

        def forward(self, chunks):
            size = sum(len(chunk.tokens) for chunk in chunks)
            self.computed = max(3, size)
            self.extra_s += TRUTH.token_s * (self.computed - size)
            return super().forward(chunks)

    engine = Pairs()
    assert min(sample.num_tokens for sample in profiler.profile(engine, GRID, 0.05, threads=1).samples) == 3
    samples = measure(Pairs()).samples
    assert len(samples) == len(measure(TimedEngine()).samples)  # none took the time of all the others
    found = fit_roofline(samples, num_terms=1).with_least(3)
    for num_tokens in (1, 2, 3, 8):
        assert found.round_s(num_tokens, 1, 20) == pytest.approx(TRUTH.round_s(max(3, num_tokens), 1, 20), rel=1e-4)


def test_where_a_change_of_size_takes_time_none_is_counted():
    class Changing(TimedEngine):
        change_rows = 4.0

        def forward(self, chunks):
            size = sum(len(chunk.tokens) for chunk in chunks)
            changes = not self.passes or self.passes[-1][0] != size
            self.computed = size + self.change_rows * changes
            if changes:
                self.extra_s += 0.5 * TRUTH.round_s(size, len(chunks), 0)
            return super().forward(chunks)

    (fitted,) = fit_roofline(measure(Changing(), seconds=3.0).samples, num_terms=1).terms
    assert fitted.coefficients == pytest.approx(TRUTH.coefficients, rel=1e-4)
