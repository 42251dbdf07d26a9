"""The mathematics of fairness: estimates of each client, models of a round's time, and draft lengths.

- `estimators.py`: Eq. (3) and Eq. (4); `lengths.py`: tokens that a text still has before it.
- `round_time.py`: models of a round's time; `fit.py` fits them to samples (of `goodspeed/serving/profiler.py`),
  `saved.py` keeps both in a file, `refined.py` learns from real rounds.
- `policies`: draft lengths by name. `selection.py`: which drafted tokens are worth verifying; `candidates.py` and
  `by_value.py` are its parts.

Numbers in, numbers out.
"""
