"""Service level objectives (SLOs): latency bounds of texts, admission control, and attainment.

- `objectives.py`: TTFT and TPOT of a request, and the tiers that name them.
- `capacity.py`: tokens that rounds can reliably carry, and the reserves.
- `feasible.py`: whether a set of requests is feasible; `admit.py`: which of them a policy admits.
- `policies.py`: admission policies by name; `dp.py`, `edf.py`: ours.
- `attainment.py`: the latencies of a text, and whether they met its objectives.

Numbers in, decisions out: every time is an argument.
"""
