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
# # What does a service level cost the others?
# Some texts ask for a time per output token (TPOT) that plain decoding does not keep. Drafted tokens bring them up to
# it, and rounds verify those first that they need. What do texts lose that ask for nothing? Everything here is
# simulated, with the nodes' own state machines: requests come by chance, are of two kinds, and differ in nothing but
# what they ask for. Eight draft nodes, each with a model of its own that drafts beside the rounds.

# %%
import os
from random import Random

from experiments.harness import plots
from experiments.simulation.open_loop.mix import Kind, mixed
from experiments.simulation.open_loop.service import serve
from experiments.simulation.settings import PLAIN, Settings
from goodspeed.fair.round_time import Linear

quick = "GOODSPEED_QUICK" in os.environ
duration_s = 5.0 if quick else 30.0
requests_per_s = 12.0
shares = [0.25, 0.75] if quick else [0.1, 0.25, 0.5, 0.75, 0.9]  # of the requests that are urgent
budget = 4  # few: what texts need, others lack
world = Settings(
    num_clients=8,
    budget=budget,
    max_round_tokens=512,
    round_cost=Linear(fixed_s=0.012, token_s=0.0001),
    known_cost=True,
    draft_cost=(Linear(fixed_s=0.002),),
    latency_s=(0.005,),
    self_draft=False,
)
ways = {"without drafts": PLAIN, "nobody asks": {}, "urgent texts ask": {}}

# %% [markdown]
# Urgent is a TPOT of 0.85 of the mean that all texts have without drafts. Each way meets the same requests; where
# nobody asks, the urgent ones ask for what is always kept.

# %%
random = Random(1)
step_s = 1.0 / requests_per_s
times = [step_s * number for number in range(int(duration_s * requests_per_s))]
calm = Kind("calm", 1.0, prompt_tokens=40, output_tokens=80, acceptance=0.7)
alone = serve(Settings(**{**vars(world), **PLAIN}), mixed(times, [calm], 0.5, random), seed=1)
plain_s = sum(alone.tpots()) / len(alone.tpots())
tpot_s = 0.85 * plain_s
print(f"without drafts {1000 * plain_s:.1f} ms a token; urgent is {1000 * tpot_s:.1f} ms")

# %%
in_time = {name: [] for name in ways}
others_ms = {name: [] for name in ways}
for share in shares:
    for name, way in ways.items():
        asked_s = 60.0 if name == "nobody asks" else tpot_s
        kinds = [
            Kind("urgent", share, 40, 80, 0.7, tpot_s=asked_s),
            Kind("calm", 1.0 - share, 40, 80, 0.7),
        ]
        texts = serve(Settings(**{**vars(world), **way}), mixed(times, kinds, 0.5, Random(2)), seed=1).texts
        urgent = [text.kept.tpot_s <= tpot_s for text in texts if text.kept.slo.tpot_s is not None]
        calm_s = [text.kept.tpot_s for text in texts if text.kept.slo.tpot_s is None]
        in_time[name].append(sum(urgent) / max(1, len(urgent)))
        others_ms[name].append(1000 * sum(calm_s) / max(1, len(calm_s)))

# %%
plots.lines(
    "urgent texts in time",
    "share of the requests that are urgent",
    "share of the urgent texts in time",
    {name: (shares, values) for name, values in in_time.items()},
    marks="o",
    ylim=(-0.03, 1.03),
)

# %%
plots.lines(
    "what the others pay",
    "share of the requests that are urgent",
    "ms per token of texts that ask for nothing",
    {name: (shares, values) for name, values in others_ms.items()},
    levels={"urgent": 1000 * tpot_s},
    marks="o",
)

# %%
print("share of urgent texts in time, and ms per token of the others")
print(f"{'urgent':>8}" + "".join(f"{name:>24}" for name in ways))
for at, share in enumerate(shares):
    print(f"{share:8.2f}" + "".join(f"{in_time[name][at]:16.2f}{others_ms[name][at]:8.1f}" for name in ways))

# %% [markdown]
# Drafts are what helps: without any no urgent text is in time, and with them everybody is quicker. What urgent texts
# are owed comes first in each round, so more of them are in time where they ask, and the others pay for it. A client's
# urgent texts never take more than its weight's share of the budget, so the others cannot lose all of theirs.
