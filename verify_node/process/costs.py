"""Measures the round time of this device at the start, and chooses the budget of `--budget auto`."""

from dataclasses import replace

from goodspeed.engine.base import Engine
from goodspeed.fair.round_time import describe, knee
from goodspeed.serving.events import QUIET, Reporter
from goodspeed.serving.measuring import profiler
from goodspeed.serving.measuring.profiler import Profile
from verify_node.config import VerifyConfig

QUICK_S = 1.5
QUICK = profiler.Grid(max_tokens=512, max_context=128, max_sessions=8, session_step=8, num_contexts=1)
"""Coarse, so that each shape is measured several times and a busy moment does not matter: a node should be ready soon,
and finished rounds refine the measurements."""

POOR_R2 = 0.9


def measure(config: VerifyConfig, engine: Engine, reporter: Reporter = QUIET) -> Profile | None:
    """Profiles forward passes of the target on this device. None if neither the budget nor the rounds use a profile."""
    if config.budget != "auto" and config.is_paper:
        return None
    reporter.say("profiling %s for about %g s ...", config.model, QUICK_S)
    found = profiler.profile(engine, QUICK, QUICK_S, threads=config.threads or 1)
    shapes = f"{found.num_passes} forward passes of {len(found.samples)} shapes in {found.wall_s:.1f} s"
    poor = "; a poor fit, which rounds correct" if found.roofline_r2 < POOR_R2 else ""
    reporter.say("profiled %s: %s: R2 of the roofline is %.3f%s", found.where, shapes, found.roofline_r2, poor)
    return found


def with_budget(config: VerifyConfig, profile: Profile | None, reporter: Reporter = QUIET) -> VerifyConfig:
    """Returns the settings with a numeric budget: `auto` becomes the `knee` of the profile within its trusted tokens.

    Without a profile the settings are returned as they are.
    """
    if config.budget != "auto" or profile is None:
        return config
    budget = knee(profile.roofline, profile.trusted_tokens)
    reporter.say("--budget auto: %s", describe(profile.roofline, budget))
    return replace(config, budget=budget)
