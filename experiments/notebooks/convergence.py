# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How fast does scheduling find the best?
# Eight clients, a budget of 20 drafted tokens a round, barrier rounds. Each client's drafts are accepted with a rate of
# its own, which the scheduler does not know: it learns it from the verdicts. The best that any scheduler could reach in
# the long run, $x^*$, is computed with the rates known. Everything here is simulated; a round has no duration.

# %%
import os

import numpy as np

from experiments.harness import plots
from experiments.simulation.arrays import rows
from experiments.simulation.arrays.optimum import geometric, optimum, utility_of
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.traces import trace
from experiments.simulation.arrays.worlds import ArraySettings, Worlds

quick = "GOODSPEED_QUICK" in os.environ
alphas = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.45, 0.3]
budget = 20
num_rounds = 100 if quick else 600
num_seeds = 5 if quick else 100
policies = ["gradient", "throughput", "fixed", "random"]

# %% [markdown]
# All policies meet the same luck: whether a client's draft agrees depends on the seed, the client, the round and the
# place in the draft, not on who asked.

# %%
draws = IndependentDraws(alphas, range(num_seeds))
settings = ArraySettings(len(alphas), budget, num_worlds=num_seeds)
traces = {name: trace(Worlds(settings, rows.create(name, num_seeds), draws), num_rounds) for name in policies}
best = optimum(geometric(alphas, budget), budget)
round_numbers = np.arange(1, num_rounds + 1)

# %% [markdown]
# ## Utility of the running average
# Drawn is the sum of the logarithms of what each client has had per round so far, as a mean over the seeds; the band is
# its 95 % interval. One round gives a wild mean, so the picture begins with the tenth. `throughput` falls: the better
# it knows the rates, the less it gives to those who are accepted less.

# %%
utilities = {name: utility_of(each.running_goodput) for name, each in traces.items()}  # [rounds, worlds]
plots.lines(
    "gradient comes closest to the best log-utility",
    "round",
    "sum of log(tokens per round)",
    {name: (round_numbers[9:], utility.mean(axis=1)[9:]) for name, utility in utilities.items()},
    bands={name: 1.96 * utility.std(axis=1)[9:] / num_seeds**0.5 for name, utility in utilities.items()},
    levels={"x*, the best in the long run": best.utility},
    xscale="log",
)

# %%
print(f"log-utility per client below that of x*, in %\n{'':12}{'round 50':>10}{f'round {num_rounds}':>12}")
for name, utility in utilities.items():
    missing = 100 * (best.utility - utility.mean(axis=1)) / len(alphas)
    print(f"{name:12}{missing[49]:10.2f}{missing[-1]:12.2f}")

# %% [markdown]
# ## What the scheduler believes
# Its estimates of three clients' acceptance, in one of the worlds. Who is given many tokens shows much in each
# round. Of who is given one or none little is seen: once believed to be worse than it is, such a client drafts seldom,
# and its estimate stays where it is for long stretches.

# %%
shown = [0, 3, 7]
plots.lines(
    "estimated acceptance in one world, around the true rates (gradient)",
    "round",
    "estimated acceptance rate",
    {f"client {client}": (round_numbers, traces["gradient"].acceptance[:, 0, client]) for client in shown},
    levels={f"true rate of client {client}": alphas[client] for client in shown},
    ylim=(0, 1),
)

# %% [markdown]
# ## The step size
# `beta` is how quickly the smoothed goodput follows, which the scheduler's sense of fairness rests on (0.5 is the
# paper's). Drawn is how much is missing at the end. Small steps lose tokens until the smoothed goodput is right, large
# ones follow each round's luck; with 1 only the last round counts, and much is lost.

# %%
betas = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
ends = {
    beta: trace(
        Worlds(
            ArraySettings(len(alphas), budget, beta=beta, num_worlds=num_seeds),
            rows.create("gradient", num_seeds),
            draws,
        ),
        num_rounds,
    ).running_goodput[-1]
    for beta in betas
}
missing = [100 * (best.utility - utility_of(end).mean()) / len(alphas) for end in ends.values()]
plots.lines(
    f"log-utility missing after {num_rounds} rounds, for each step size beta",
    "beta",
    "per client below x* [%]",
    {"gradient": (betas, missing)},
    levels={"wanted at most": 1.0},
    marks="o",
    xscale="log",
)
