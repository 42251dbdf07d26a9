"""The mathematics of service level objectives (SLOs): what a request may ask for, what can be admitted, what was kept.

- `objectives.py`: TTFT and TPOT of a request, and the tiers that name them.
- `feasible.py`: which sets of requests can be kept; `dp.py` and `edf.py`: which of them is chosen; `admit.py`: both.
- `headroom.py`: what is kept in reserve. `kept.py`: whether a text was in time.

Numbers in, decisions out: every time is an argument.
"""
