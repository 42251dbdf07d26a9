"""The scheduler: when a round starts, which drafted tokens it verifies, who fits into it, and what follows from it.

- `start.py`: when the next round starts, and who is ready for it.
- `select.py`: which drafted tokens are worth their time; `drafted.py`: those that there are, the verify node's own too.
- `pack.py`: fills a round within budget, token limit and memory (`memory.py`); `round.py` has the result, plain data.
- `preempt.py`: who has memory where it is short, by an order (`order.py`, `laps.py`) and by the time in rounds that
  each session has had (`service.py`).
- `commit.py`: what a finished round does to its sessions; `allocate.py`: what it teaches, who may draft how much next;
  `model_drafts.py`: whether draft models may draft at all, where they share this machine.

Times are arguments; no I/O.
"""
