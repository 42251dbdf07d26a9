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
# # How many users of this tier can my GPU promise?
# A verify node promises a first token in time (TTFT) and a time per output token after it (TPOT), and keeps both
# whatever else is asked for ([SLO.md](../../docs/SLO.md#what-is-promised)). So it can promise only so much.
#
# **Computed, not measured**, and without drafts, since no promise rests on them. How long a round takes comes from
# datasheets, or from a file that you have made with `goodspeed profile --json > FILE`. To plan for your own GPU, change
# the five numbers of the next cell, and the tiers.

# %%
import os

from experiments import capacity
from experiments.harness import plots
from experiments.slo.promise_capacity import Plan, Tier, most_decoding, promised_share, steady

quick = "GOODSPEED_QUICK" in os.environ

gpu = capacity.preset("Qwen3")  # Qwen3-14B on an H100; or "Llama 3"; or capacity.profiled("profile.json")
longer = 1.15  # rounds are planned as so many times longer than modelled: 1 and three times their usual error
between_s = 30.0  # from one request of a user to the next
seconds = 5.0 if quick else 60.0  # for which requests are decided on, at each load
loads = [0.5, 1.25] if quick else [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5]  # over what was computed

tiers = {
    "completion": Tier(ttft_s=0.5, tpot_s=0.02, prompt_tokens=1500, output_tokens=60),
    "chat": Tier(ttft_s=1.0, tpot_s=0.05, prompt_tokens=500, output_tokens=200),
    "summary": Tier(ttft_s=5.0, tpot_s=0.1, prompt_tokens=3000, output_tokens=200),
}
mix = {"completion": 0.5, "chat": 0.4, "summary": 0.1}  # shares of the requests

# %% [markdown]
# ## In the steady state
# Rounds are as long as the tightest TPOT, `T`, and of what they carry `tokens_in(T)` tokens are promised: three
# quarters, since the others are for texts without promises. A text that decodes takes one token per TPOT of its own.
# What is left is for prompts. If `r` requests come in a second, with prompts of `p` tokens and texts of `o`, then in
# the long run `r (p + o - 1)` tokens per second have to fit into `tokens_in(T) / T`, for the first token comes with
# the prompt's last. `tokens_in` itself falls with the sessions that are open, `r (o - 1) TPOT` of them, since their
# keys and values are read. And as each text has its memory reserved from the beginning to the end, `r (TTFT + (o - 1)
# TPOT) (p + o)` tokens have to fit into three quarters of the memory.
#
# The least of these bounds is the number of requests in a second that can all be promised. Times what passes between
# two requests of a user it is the number of users.

# %%
plans = {name: Plan(gpu, ((tier, 1.0),), longer) for name, tier in tiers.items()}
plans["mix"] = Plan(gpu, tuple((tiers[name], share) for name, share in mix.items()), longer)
found = {name: steady(plan) for name, plan in plans.items()}

print(f"{gpu.name}; a user asks every {between_s:g} s")
print(f"{'':12}{'TTFT':>8}{'TPOT':>8}{'decode for ever':>17}{'requests/s':>12}{'decoding':>10}{'limit':>8}{'users':>7}")
for name, state in found.items():
    level = f"{'':16}{'':17}"
    if name in tiers:
        tier = tiers[name]
        level = f"{tier.ttft_s:6g} s{1000 * tier.tpot_s:5g} ms{most_decoding(gpu, tier, longer):17}"
    decoding, users = state.num_decoding, state.requests_per_s * between_s
    print(f"{name:12}{level}{state.requests_per_s:12.1f}{decoding:10.0f}{state.limit:>8}{users:7.0f}")

# %% [markdown]
# *Decode for ever* is how many texts could decode if nobody new came. *Decoding* is how many do while requests come:
# most of the time goes into prompts. A mix is decided by its tightest TPOT: all rounds have to be as short as the
# quickest tier needs them, and short rounds read the weights more often.

# %% [markdown]
# ## With requests that come at random
# The same, decided request by request as a verify node does (`goodspeed.admission.admit`), beside what is promised
# already, and with everybody served as slowly as was promised. Up to 0.7 or 0.9 of what was computed nearly all are
# promised: the longer the TTFT is over the time that a prompt takes, the more. At 1 some are not, because they come in
# the wrong moment. Beyond that the share is promised that fits.

# %%
shares = {
    name: [promised_share(plan, load * found[name].requests_per_s, seconds) for load in loads]
    for name, plan in plans.items()
}
plots.lines(
    "requests that are promised",
    "requests per second, over what was computed",
    "share promised",
    {name: (loads, values) for name, values in shares.items()},
    limits={"computed": 1.0},
    marks="o",
    ylim=(0.0, 1.03),
)

# %%
print(f"{'users':12}{'computed':>10}{'of whom 0.99 of the requests are promised, by chance':>55}")
for name, state in found.items():
    nearly_all = max((load for load, share in zip(loads, shares[name], strict=True) if share >= 0.99), default=0.0)
    users = state.requests_per_s * between_s
    print(f"{name:12}{users:10.0f}{nearly_all * users:55.0f}")
