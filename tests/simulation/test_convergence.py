"""The experiments about convergence, in small: what they report is what their settings make of it."""

import numpy as np
import pytest

from experiments import fig4_convergence as fig4
from experiments.harness import HERE, load
from goodspeed.errors import ConfigError


def test_the_policies_come_in_their_order_and_gradient_comes_near_the_optimum():
    variants = [fig4.Variant(name, name) for name in ("gradient", "throughput", "fixed", "random")]
    outcome = fig4.experiment(fig4.Config(20, 200, [fig4.Setting(8, 20, "recorded")], variants))
    final = {name: found["log_utility_final"] for name, found in outcome.facts["policies"].items()}
    best = outcome.facts["optimum_log_utility"]
    assert best - 0.01 * 8 < final["gradient"] < best + 0.01 * 8
    assert final["gradient"] > final["fixed"] > final["random"] > final["throughput"]
    assert outcome.facts["by_setting"]["8 clients, C = 20, recorded"]["policies"] == outcome.facts["policies"]
    last = {row["variant"]: row["log_utility"] for row in outcome.rows}
    assert last == pytest.approx(final, abs=1e-4)


def test_the_round_from_which_it_stays_near():
    assert fig4._settled(np.array([9.0, 1.0, 3.0, 1.9, 1.0])) == 4
    assert fig4._settled(np.array([1.0, 1.0])) == 1


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="2 rates of acceptance for 3 clients"):
        fig4.Setting(3, 9, [0.5, 0.6]).agreement([0])
    with pytest.raises(ConfigError, match="50 rounds"):
        fig4.experiment(fig4.Config(2, 10, [fig4.Setting(3, 9, "replay")], []))


@pytest.mark.parametrize("section", ["full", "quick"])
def test_the_main_setting_is_eight_clients_with_twenty_tokens_over_a_hundred_seeds(section):
    config = load(HERE / "configs" / "fig4_convergence.toml", section, fig4.Config)
    assert config.settings[0] == fig4.Setting(8, 20, "recorded")
    assert config.num_seeds >= 100
    assert config.num_rounds == 600
