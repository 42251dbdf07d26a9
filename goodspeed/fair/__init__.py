"""The mathematics of fairness: estimates of each client, models of a round's time, and draft lengths.

- `estimators.py`: acceptance rate, Eq. (3), and goodput, Eq. (4); `lengths.py`: remaining tokens of a text.
- `round_time.py`: models of a round's time; `fit.py` fits them to samples (of `serving/measuring/profiler.py`),
  `refined.py` learns from real rounds.
- `policies`: draft lengths by name. `selection.py`: drafted tokens that are worth verifying.

Numbers in, numbers out.
"""
