"""Service levels (SLOs) at the verify node: the planning by the deadlines of sessions (`session/deadline.py`).

A promise is an admitted deadline: the session's time in rounds and its KV pages are reserved.

- `terms.py`: service levels that a key may request.
- `promises.py`: all admitted deadlines. `Promises.decide` admits between two rounds, first those within clients' shares
  by weight; `Promises.allot` computes before each round what is reserved in it, and what best effort retains.
  `verify_node/core/admission.py` carries decisions out, `Verdict.promised` reports them.
- `allotting.py`: how long a round may be, and its reserved tokens.
- `needs.py`: which drafted tokens selection owes to late sessions, promised or not.

Pure: every time is an argument.
"""
