"""Measures a model's forward passes on this device, and fits a roofline to their times.

Only the forward pass is measured, not sampling or verification.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from goodspeed.fair.round_time import Linear, describe, knee
from goodspeed.serving.config import add_options, from_namespace, option
from goodspeed.serving.events import Reporter, print_json
from goodspeed.serving.options import ModelSettings
from goodspeed.serving.running import add_common_options, find_model
from goodspeed.wire.fields import MAX_CONTEXT

if TYPE_CHECKING:
    from goodspeed.serving.measuring.profiler import Profile

NAME = "profile"
HELP = "measure forward passes on this device and fit a roofline"
EXAMPLE = "goodspeed profile --model tiny-target --json > profile.json"
WANTED_R2 = 0.95


@dataclass(frozen=True, kw_only=True)
class ProfileConfig(ModelSettings):
    """Settings of `goodspeed profile`; see its --help."""

    seconds: float = option(20.0, "measuring", "about how long to measure", minimum=0.1, maximum=3600.0, metavar="S")
    max_tokens: int = option(512, "measuring", "most tokens of a forward pass", minimum=1, maximum=1 << 20)
    max_context: int = option(1024, "measuring", "most tokens cached of a session", minimum=0, maximum=MAX_CONTEXT)
    max_sessions: int = option(16, "measuring", "most sessions of a forward pass", minimum=1, maximum=4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, ProfileConfig)
    add_common_options(parser, "one JSON object as the last line (default: a table)")


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(ProfileConfig, namespace)
    reporter = Reporter("goodspeed")
    find_model(config.model, reporter, config.device, config.dtype, engine=config.engine)
    reporter.say("loading %s, then measuring for about %g s ...", config.model, config.seconds)
    from goodspeed.engine import engines  # after the options are checked: torch takes seconds
    from goodspeed.serving.measuring import profiler

    engine = engines.start(engines.load(config.model, **config.computed_by))
    if (max_context := engine.checkpoint.context_len - 1) < config.max_context:
        reporter.say("--max-context %d is more than the model's; measuring with %d", config.max_context, max_context)
    grid = profiler.Grid(config.max_tokens, min(config.max_context, max_context), config.max_sessions)
    profile = profiler.profile(engine, grid, config.seconds, threads=config.threads or 1)
    show(profile, sys.stderr if namespace.json else sys.stdout)
    if namespace.json:
        print_json(msgspec.to_builtins(profile) | {"budget": knee(profile.roofline, profile.trusted_tokens)})
    return 0


def show(profile: "Profile", file: Any) -> None:
    """Prints the table of measured passes, the fit, and the knee."""
    print(f"{'tokens':>7} {'sessions':>8} {'context':>8} {'ms':>9} {'roofline':>9}", file=file)
    for sample in profile.samples:
        counts = sample.num_tokens, sample.num_sessions, sample.context_tokens
        times = [sample.seconds, profile.roofline.round_s(*counts)]
        print("{:7d} {:8d} {:8d}".format(*counts), *(f"{1e3 * time:9.2f}" for time in times), file=file)
    print(
        f"{profile.num_passes} passes of {len(profile.samples)} shapes in {profile.wall_s:.1f} s: {profile.where}; "
        "the lower quartile of each shape counts",
        file=file,
    )
    for number, term in enumerate(profile.roofline.terms):
        print(f"{'roofline' if number == 0 else '  or':<9} {line(term)}", file=file)
    print(f"          the larger of these; {r2(profile.roofline_r2)}", file=file)
    budget = knee(profile.roofline, profile.trusted_tokens)
    print(f"knee      {describe(profile.roofline, budget)}", file=file)


def line(term: Linear) -> str:
    per = zip((term.token_s, term.session_s, term.context_s), ("token", "session", "cached token"), strict=True)
    return f"{1e3 * term.fixed_s:.3f} ms + " + " + ".join(f"{1e6 * value:.4g} us a {name}" for value, name in per)


def r2(value: float) -> str:
    return f"R2 {value:.4f}" + (
        "" if value >= WANTED_R2 else f", below {WANTED_R2}: measure longer, on a quiet machine"
    )
