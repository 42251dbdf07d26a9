"""Service levels (SLOs) at the verify node: the planning by the deadlines of sessions (`session/deadline.py`).

A promise is an admitted deadline: the session's time in rounds and its KV pages are reserved.

- `terms.py`: service levels that a key may request.
- `promises.py`: all admitted deadlines. `Promises.decide` admits between two rounds, `Promises.allot` computes before
  each round what is reserved in it. `verify_node/core/admission.py` carries decisions out, `Verdict.promised` reports
  them.
- `deciding.py`: which deadlines are admitted: first those within clients' shares by weight.
- `allotting.py`: how long a round may be, and its reserved tokens; `floor.py`: the tokens that best effort retains.
- `needs.py`: which drafted tokens selection owes to late sessions, promised or not.

Pure: every time is an argument.
"""
