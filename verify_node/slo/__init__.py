"""Service levels (SLOs) at the verify node: one `Deadline` for each session that asks for one, and who reads it.

A promise is an admitted deadline: the session's time in rounds and its KV pages are reserved.

- `deadline.py`: when the next token is due, what the session needs, and where its time went.
- `terms.py`: what a key may ask for.
- `promises.py`: all admitted deadlines. `Promises.decide` admits between two rounds, `Promises.allot` says before each
  round what is reserved of it. `verify_node/core/admitting.py` carries decisions out, `Verdict.promised` tells them.
- `deciding.py`: which deadlines are admitted, and whose go first: within clients' shares by weight.
- `allotting.py`: how long a round may be and what of it is reserved; `floor.py`: what of it best effort keeps.
- `needs.py`: which drafted tokens selection owes to late sessions, promised or not.

Pure: every time is an argument.
"""
