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
# # Who gets how much?
# Eight clients share a budget of 20 drafted tokens a round. Drafts of some are nearly always accepted, those of others
# seldom. A client without any draft still gets one token a round. Everything here is simulated, with barrier rounds.

# %%
import os

import numpy as np

from experiments.harness import plots
from experiments.simulation.arrays import rows
from experiments.simulation.arrays.optimum import geometric, optimum
from experiments.simulation.arrays.probabilities import IndependentDraws
from experiments.simulation.arrays.traces import trace
from experiments.simulation.arrays.worlds import ArraySettings, Worlds

quick = "GOODSPEED_QUICK" in os.environ
alphas = [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.45, 0.3]
budget = 20
num_rounds = 100 if quick else 600
num_seeds = 2 if quick else 20
clients = [f"{alpha:g}" for alpha in alphas]
draws = IndependentDraws(alphas, range(num_seeds))
settings = ArraySettings(len(alphas), budget, num_worlds=num_seeds)
curves = geometric(alphas, budget)

# %% [markdown]
# ## The policies
# `gradient` is proportionally fair, `throughput` maximises the sum of accepted tokens, `fixed` gives everybody equally
# much, `random` draws. The black lines are $x^*$, the best proportionally fair goodput when the rates are known.
# `fixed` gives those who are accepted least more than $x^*$ does, at the cost of all others.

# %%
policies = ["gradient", "throughput", "fixed", "random"]
traces = {name: trace(Worlds(settings, rows.create(name, num_seeds), draws), num_rounds) for name in policies}
goodputs = {name: each.tokens.mean(axis=(0, 1)) for name, each in traces.items()}
plots.bars(
    "gradient follows x*; throughput feeds those that are accepted most",
    "client, by its acceptance rate",
    "tokens per round",
    clients,
    goodputs,
    marks={"x*": optimum(curves, budget).goodput},
    levels={"without a draft": 1.0},
)

# %%
lengths = {name: each.lengths.mean(axis=(0, 1)) for name, each in traces.items()}
plots.bars(
    "draft lengths that lead to this",
    "client, by its acceptance rate",
    "drafted tokens per round",
    clients,
    lengths,
    marks={"x*": optimum(curves, budget).lengths},
)

# %%
print(f"{'tokens per round':12}{'all':>8}{'least':>8}{'most':>8}   Jain's index")
for name, goodput in goodputs.items():
    jain = goodput.sum() ** 2 / (len(alphas) * (goodput**2).sum())
    print(f"{name:16}{goodput.sum():8.2f}{goodput.min():8.2f}{goodput.max():8.2f}{jain:10.3f}")

# %% [markdown]
# ## How fair shall it be?
# The option `fairness` of `gradient` is a number: 0 maximises the total, 1 is proportional, larger ones look after
# those who get least. Beside what was simulated stands the best that is possible at each.

# %%
degrees = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
simulated = np.stack(
    [
        trace(Worlds(settings, rows.create("gradient", num_seeds, fairness=degree), draws), num_rounds).tokens.mean(
            axis=(0, 1)
        )
        for degree in degrees
    ]
)  # [degrees, clients]
possible = np.stack([optimum(curves, budget, fairness=degree).goodput for degree in degrees])
plots.lines(
    "more fairness costs tokens in total ...",
    "fairness (0: total, 1: proportional)",
    "tokens per round, all clients",
    {"gradient": (degrees, simulated.sum(axis=1)), "the best": (degrees, possible.sum(axis=1))},
    marks="o",
)

# %%
plots.lines(
    "... and gives the client that gets least some of them",
    "fairness (0: total, 1: proportional)",
    "tokens per round",
    {
        "gradient: least": (degrees, simulated.min(axis=1)),
        "the best: least": (degrees, possible.min(axis=1)),
        "gradient: most": (degrees, simulated.max(axis=1)),
        "the best: most": (degrees, possible.max(axis=1)),
    },
    levels={"without a draft": 1.0},
    marks="o",
)

# %% [markdown]
# ## Weights
# Eight equal clients, all with a rate of 0.8; the weight of the last is 1, 2, 4 or 8, that of the others 1. A weight is
# not a multiple of tokens: drafts are worth less the longer they are, so the one that weighs more gains ever less.

# %%
weights = [1, 2, 4, 8]
equal = IndependentDraws([0.8] * len(alphas), range(num_seeds))
weighted = np.stack(
    [
        trace(
            Worlds(
                ArraySettings(len(alphas), budget, num_worlds=num_seeds, weights=[*[1.0] * (len(alphas) - 1), weight]),
                rows.create("gradient", num_seeds),
                equal,
            ),
            num_rounds,
        ).tokens.mean(axis=(0, 1))
        for weight in weights
    ]
)  # [weights, clients]
plots.bars(
    "a larger weight brings more tokens, less and less so",
    "weight of the last client",
    "tokens per round",
    [str(weight) for weight in weights],
    {"the last client": weighted[:, -1], "the others, mean": weighted[:, :-1].mean(axis=1)},
    levels={"without a draft": 1.0, "no draft of 0.8 brings more than": 1 / (1 - 0.8)},
)
