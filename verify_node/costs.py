"""Obtains the round time on this device: from a saved profile, or from a quick one at the start.

Reports the measurements and the chosen budget.
"""

from dataclasses import replace

from goodspeed.engine.runner import Runner
from goodspeed.errors import ConfigError
from goodspeed.fair import saved
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import describe, knee
from goodspeed.fair.saved import Profile
from goodspeed.serving import profiler
from goodspeed.serving.events import QUIET, Reporter
from verify_node.config import VerifyConfig

QUICK_S = 1.5
QUICK = profiler.Grid(max_tokens=512, max_context=128, max_sessions=8, session_step=8, num_contexts=1)
"""Coarse, so that each shape is measured several times and a busy moment does not matter: a node should be ready soon,
and finished rounds refine the measurements."""

POOR_R2 = 0.9


def find_profile(config: VerifyConfig, runner: Runner, reporter: Reporter = QUIET) -> Profile | None:
    """Returns the profile of this model and device: loaded from --profile, or measured now; None if none is needed.

    Raises ConfigError for a file that is damaged, or of another model or device.
    """
    setting = profiler.setting(runner.checkpoint)
    if config.profile is not None:
        found = saved.load(config.profile)
        saved.check(found, setting, config.profile)
        reporter.say(
            "profile %s, measured %s UTC: %s", config.profile, f"{found.measured_at:%Y-%m-%d %H:%M}", _fit(found)
        )
        return found
    if config.budget != "auto" and config.is_paper:
        return None
    most = min(QUICK.max_tokens, config.max_round_tokens or QUICK.max_tokens)  # larger rounds may exceed the memory
    reporter.say("profiling %s for about %g s ...", config.model, QUICK_S)
    found, measured = profiler.profile(runner, replace(QUICK, max_tokens=most), QUICK_S)
    where = f"{setting.model} on {setting.hardware}, {setting.dtype}, {setting.threads} threads"
    shapes = f"{measured.num_passes} forward passes of {len(found.samples)} shapes in {measured.wall_s:.1f} s"
    reporter.say("profiled %s: %s: %s", where, shapes, _fit(found))
    return found


def make_cost(profile: Profile | None) -> Refined:
    """Returns the round time model, which finished rounds refine; without a profile it learns from rounds alone."""
    return Refined(profile.roofline if profile is not None else None)


def with_budget(config: VerifyConfig, profile: Profile | None, reporter: Reporter = QUIET) -> VerifyConfig:
    """Returns the settings with a numeric budget: `auto` becomes the knee of the profile."""
    if config.budget != "auto":
        return config
    if profile is None:
        raise ConfigError("--budget auto needs a profile; give --profile FILE, or a number")
    most = profile.trusted_tokens if config.max_round_tokens is None else config.max_round_tokens - 1
    budget = knee(profile.roofline, most)
    reporter.say("--budget auto: %s", describe(profile.roofline, budget))
    return replace(config, budget=budget)


def _fit(profile: Profile) -> str:
    poor = "; a poor fit, which rounds correct: give --profile FILE, measured on a quiet machine, for a better start"
    return f"R2 of the roofline is {profile.roofline_r2:.3f}" + poor * (profile.roofline_r2 < POOR_R2)
