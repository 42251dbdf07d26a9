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
# # How many draft nodes can my GPU serve?
# And is a user quicker than with plain decoding, where the GPU gives everybody a token a round and nobody drafts?
#
# **Computed, not measured.** The nodes' own state machines run in a simulation, with continuous rounds and the
# `gradient` policy. How long a round takes comes from datasheets, or from a file that you have made with
# `goodspeed profile --json > FILE`. Put your own figures into the next cell.

# %%
import os
from dataclasses import replace

from experiments import capacity
from experiments.capacity import Plan, User
from experiments.harness import plots

quick = "GOODSPEED_QUICK" in os.environ
few = 2 if quick else 16  # fewer clients are watched for longer

gpu = capacity.preset("Qwen3")  # Qwen3-14B on an H100; or "Llama 3"; or capacity.profiled("profile.json")
acceptance = 0.8  # of each client's drafts; `goodspeed demo` and the verify node's events tell yours
round_trip_s = 0.02  # between a draft node and the verify node
context_tokens = 500  # of a text when it begins
wanted = 60.0  # tokens/s that a user shall have at least
draft_nodes = {
    "an L4 with Qwen3-0.6B": capacity.preset_draft("Qwen3"),
    "500 tokens/s": capacity.drafting(500),
    "2,000 tokens/s": capacity.drafting(2000),
}
sizes = [1, 8, 32] if quick else [1, 2, 4, 8, 16, 32, 64, 128, 192, 256]

# %%
plans = {
    name: Plan(gpu, (User(acceptance, cost, round_trip_s),), context_tokens, few=few)
    for name, cost in draft_nodes.items()
}
curves = {"plain decoding": capacity.curve(next(iter(plans.values())), sizes, plain=True)}
curves |= {name: capacity.curve(plan, sizes) for name, plan in plans.items()}
fits = gpu.sessions_that_fit(context_tokens)
limits = {} if fits is None or fits > sizes[-1] else {"texts that fit in memory": fits}
print(gpu.name, "" if fits is None else f"; {fits:.0f} texts of {context_tokens} tokens fit in its memory", sep="")

# %% [markdown]
# ## What each user gets
# The GPU reads its weights once a round, whoever is in it, so at first another client costs the others little: only its
# keys and values are read besides. Where a round's arithmetic begins to take longer than reading the weights, every
# token more makes the round longer for all. Drafted tokens make that come earlier, so the scheduler hands out fewer,
# and in the end the curves meet.
#
# Drafting pays where it is quick: a draft of a few tokens has to be made and sent in less time than the GPU takes for
# as many rounds. The L4 takes half a round for each token, so the scheduler lets it draft next to nothing. Its
# users are a little slower than with plain decoding, by up to 1 %, since now and then it asks for a draft and waits for
# it, to see whether drafting pays by now. Where it nearly pays (500 tokens/s) that costs up to 2 %.

# %%
plots.lines(
    f"a user's speed, by the number of clients (acceptance {acceptance:g}, {1000 * round_trip_s:g} ms)",
    "clients",
    "tokens/s of a user",
    {name: (sizes, [point.slowest for point in points]) for name, points in curves.items()},
    levels={"wanted": wanted},
    limits=limits,
    marks="o",
    xscale="log",
)

# %%
print(f"clients at which a user falls below {wanted:g} tokens/s")
for name, points in curves.items():
    print(f"{name:24}{capacity.most_clients(points, wanted)}")

# %% [markdown]
# ## What the GPU gives in all
# The sum over the users, and below how long drafts are: where the scheduler sees that drafting does not pay, it asks
# for none, and the curve is that of plain decoding.

# %%
plots.lines(
    "tokens/s of all users together",
    "clients",
    "tokens/s",
    {name: (sizes, [point.tokens_per_s for point in points]) for name, points in curves.items()},
    limits=limits,
    marks="o",
    xscale="log",
    yscale="log",
)

# %%
print(capacity.table(curves))

# %% [markdown]
# ## How quick must a draft node be?
# With a fixed number of clients: a user's speed by the draft node's, for three rates of acceptance. The less is
# accepted, the quicker it has to be; below that the scheduler leaves it at plain decoding.

# %%
num_clients = 4 if quick else 16
speeds = [100, 1000] if quick else [100, 200, 400, 800, 1600, 3200]
rates = [0.6, 0.8, 0.9]
first = next(iter(plans.values()))
users = {
    rate: [replace(first, users=(User(rate, capacity.drafting(speed), round_trip_s),)) for speed in speeds]
    for rate in rates
}
plots.lines(
    f"a user's speed by the draft node's, {num_clients} clients, {1000 * round_trip_s:g} ms",
    "draft node [tokens/s]",
    "tokens/s of a user",
    {
        f"acceptance {rate:g}": (speeds, [capacity.serve(plan, num_clients).slowest for plan in users[rate]])
        for rate in rates
    },
    levels={"plain decoding": capacity.serve(first, num_clients, plain=True).slowest, "wanted": wanted},
    marks="o",
    xscale="log",
)

# %% [markdown]
# ## How near must it be?
# The same over the round trip, with the quickest of the draft nodes above. While a draft is on its way the GPU verifies
# those of others, but its own user waits: far away only drafts that are nearly always accepted pay, then none.

# %%
round_trips_s = [0.001, 0.1] if quick else [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
quickest = list(draft_nodes.values())[-1]
distances = {
    rate: [replace(first, users=(User(rate, quickest, distance_s),)) for distance_s in round_trips_s] for rate in rates
}
plots.lines(
    f"a user's speed by the distance, {num_clients} clients, draft nodes of {list(draft_nodes)[-1]}",
    "round trip [ms]",
    "tokens/s of a user",
    {
        f"acceptance {rate:g}": (
            [1000 * distance_s for distance_s in round_trips_s],
            [capacity.serve(plan, num_clients).slowest for plan in distances[rate]],
        )
        for rate in rates
    },
    levels={"plain decoding": capacity.serve(first, num_clients, plain=True).slowest, "wanted": wanted},
    marks="o",
    xscale="log",
)
