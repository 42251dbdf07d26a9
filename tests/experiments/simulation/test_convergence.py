"""The experiments about convergence, in small: what they report is what their settings make of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments import fig2_estimation as fig2
from experiments import fig4_convergence as fig4
from experiments import theorem1
from experiments.harness.experiment import HERE, load
from goodspeed.errors import ConfigError


def test_the_policies_come_in_their_order_and_gradient_comes_near_the_optimum():
    """Clients have a weak and a strong draft model in turn, so equal shares are not fair."""
    variants = [fig4.Variant(name, name) for name in ("gradient", "throughput", "fixed", "random")]
    outcome = fig4.experiment(fig4.Config(20, 200, [fig4.Setting(8, 20, "recorded")], variants))
    final = {name: found["log_utility_final"] for name, found in outcome.facts["policies"].items()}
    best = outcome.facts["optimum_log_utility"]
    assert best - 0.01 * 8 < final["gradient"] < best + 0.01 * 8
    assert final["gradient"] > final["throughput"] > final["fixed"] + 0.01 * 8 > final["random"] + 0.1 * 8
    assert outcome.facts["by_setting"]["8 clients, C = 20, recorded"]["policies"] == outcome.facts["policies"]
    last = {row["variant"]: row["log_utility"] for row in outcome.rows}
    assert last == pytest.approx(final, abs=1e-4)


@pytest.mark.thorough
def test_readme_says_how_fair_the_default_is_as_the_command_does(monkeypatch):
    """The row of README, from the quick settings; the same on every machine, and in the order that it claims."""
    config = load(HERE / "configs" / "fig4_convergence.toml", "quick", fig4.Config)
    monkeypatch.setattr(fig4, "WORLDS", {fig4.SCARCE: fig4.WORLDS[fig4.SCARCE]})
    rows = {row["way"]: row for row in config.served.rows(["fixed", "random"])}
    times = {name: np.exp(rows[name]["ours_above"]) for name in ("random", "fixed", "paper")}
    random, fixed = (f"{100 * (times[name] - 1):.1f} %" for name in ("random", "fixed"))
    worst = [f"{rows[name]['worst_tokens_per_s']:.0f}" for name in ("gradient", "fixed", "paper")]
    row = next(line for line in (HERE.parent / "README.md").read_text("utf-8").splitlines() if "Is it fair?" in line)
    assert f"{random} above `random`, {fixed} above `fixed`, {times['paper']:.1f} times `--preset paper`" in row
    assert "the slowest has {} tokens/s, with `fixed` {}, with the preset {}".format(*worst) in row
    assert 0.0 < rows["random"]["ours_above"] < rows["fixed"]["ours_above"] < rows["paper"]["ours_above"]


def test_estimates_are_compared_by_hand():
    """An estimate that is one too high everywhere is wrong by one, and follows."""
    realised = np.arange(30.0)
    series = fig2.Series(realised, realised + 1.0)
    mean, band = fig2.moving(realised)
    assert mean[:2].tolist() == [4.5, 5.5]
    assert band[0] == pytest.approx(np.std(np.arange(10)))
    compared = fig2.compare(series)
    assert compared["mean_absolute_error"] == compared["bias"] == 1.0
    assert compared["correlation"] == pytest.approx(1.0)
    assert compared["bands_meet"] == 1.0


def test_smaller_steps_come_nearer_to_the_optimum():
    sizes: Any = {"time": 10, "kept": 5, "settle": 2, "num_seeds": 6, "num_clients": 4, "budget": 24}
    config = theorem1.Config(betas=[0.5, 0.1], eta_of_one=0.5, powers=[1.5], **sizes)
    outcome = theorem1.experiment(config)
    far, near = (row["distance"] for row in outcome.rows)
    assert near < 0.6 * far
    assert outcome.findings[-2].reached
    assert [row["eta_over_beta"] for row in outcome.rows] == pytest.approx([0.5 * 0.5**0.5, 0.5 * 0.1**0.5])
    with pytest.raises(ConfigError, match="two betas"):
        theorem1.experiment(replace(config, betas=[0.1]))
