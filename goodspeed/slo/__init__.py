"""The mathematics of service level objectives (SLOs): what a request may ask for, what can be admitted, what was kept.

- `objectives.py`: TTFT and TPOT of a request, and the tiers that name them.
- `capacity.py`: how many tokens rounds carry for sure, and what is kept in reserve.
- `feasible.py`: which sets of requests can be kept; `dp.py` and `edf.py`: which of them is chosen; `admit.py`: both.
- `kept.py`: the times of a text, and whether it was in time.

Numbers in, decisions out: every time is an argument.
"""
