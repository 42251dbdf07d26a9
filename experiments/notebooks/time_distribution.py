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
# # Where does the time go?
# Eight clients write texts of 150 tokens with a Qwen3-14B on an H100 and Qwen3-0.6B as draft model, on draft nodes that
# are four times as quick as L4s (with L4s drafting does not pay here, see `capacity_planning`). The round trip is 2 ms.
# All times are computed from datasheets, none is measured. In barrier rounds everybody waits for the slowest draft; in
# continuous rounds, GoodSpeed's own, the verify node takes what is there.

# %%
import os
from dataclasses import replace

import numpy as np

from experiments.harness import plots
from experiments.simulation import accounts
from experiments.simulation.paper import POLICIES, Nodes, Row, world

quick = "GOODSPEED_QUICK" in os.environ
num_texts = 1 if quick else 4
row = Row("Qwen3", num_clients=8, budget=20, max_tokens=150, models=(0,))
alike = Nodes(slower=(0.25,))  # times an L4's time
one_slow = replace(alike, slower=(0.25,) * 7 + (2.5,))  # the last draft node takes ten times as long
kinds = ["barrier", "continuous"]
options = {"wire": "match", "num_texts": num_texts, "seed": 0}

# %% [markdown]
# ## Receiving, verifying, sending
# *Receiving* is the verify node's wait for drafts, *verifying* its rounds, *sending* the verdicts' time on its line.
# `gradient` is the paper's scheduler. Sending is in the picture, too small to be seen. With barrier rounds the verify
# node waits for every draft. With continuous rounds it waits less and verifies for longer, since rounds are more.
# `plain` drafts nothing: the verify node never waits.

# %%
runs = {
    (policy, rounds): accounts.run(world(row, alike, policy=policy, rounds=rounds, **options), 0)
    for rounds in kinds
    for policy in POLICIES
}
plots.stacked(
    "time until every client has its tokens, draft nodes alike",
    "seconds",
    [f"{policy}, {rounds}" for policy, rounds in runs],
    {
        "receiving": [run.accounts.receive_s for run in runs.values()],
        "verifying": [run.accounts.verify_s for run in runs.values()],
        "sending": [run.accounts.send_s for run in runs.values()],
    },
)

# %% [markdown]
# ## One slow draft node
# The same with one draft node that takes ten times as long for everything. The bars last until the slow one has its
# tokens, too. With barrier rounds everybody waits for it; with continuous ones only its own user does (the table).

# %%
slowed = {
    (policy, rounds): accounts.run(world(row, one_slow, policy=policy, rounds=rounds, **options), 0)
    for rounds in kinds
    for policy in POLICIES
}
plots.stacked(
    "time until every client has its tokens, one draft node ten times slower",
    "seconds",
    [f"{policy}, {rounds}" for policy, rounds in slowed],
    {
        "receiving": [run.accounts.receive_s for run in slowed.values()],
        "verifying": [run.accounts.verify_s for run in slowed.values()],
        "sending": [run.accounts.send_s for run in slowed.values()],
    },
)

# %% [markdown]
# ## How long a user waits
# From one verdict to the next of a text, for the seven clients whose draft nodes are alike, while the eighth is slow.
# With barrier rounds a slow draft is everybody's; with continuous rounds only its own user's, as the table says.

# %%
plots.exceeded(
    "waits of the seven other clients: barrier rounds make them wait for the slow one",
    "from one verdict to the next [ms]",
    {
        f"{policy}, {rounds}": [1000 * wait for client in range(7) for wait, _ in run.gaps(client)]
        for (policy, rounds), run in slowed.items()
        if policy in ("fixed", "gradient")
    },
    xscale="log",
)

# %%
print(f"{'tokens/s of a client':28}{'the seven, mean':>16}{'the slow one':>14}")
for (policy, rounds), run in slowed.items():
    print(f"{f'{policy}, {rounds}':28}{np.mean(run.speeds[:7]):16.1f}{run.speeds[7]:14.1f}")
