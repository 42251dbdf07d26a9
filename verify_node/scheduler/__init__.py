"""The scheduler: starts rounds, chooses drafted tokens, packs rounds, and applies their outcomes.

- `start.py`: decides when the next round starts, and with which ready sessions.
- `choose.py`: chooses the drafted tokens that are worth their time; `prompt_lookup.py`: drafts from the sessions' own
  texts.
- `pack.py`: fills a round within budget, token limit and free pages; `round.py`: the round as plain data.
- `preempt.py`: assigns KV pages when they are short, by an order (`orders`) and each session's time in rounds
  (`attained_service.py`).
- `commit.py`: applies a finished round to its sessions; `allocate.py`: updates estimates, and permits drafts;
  `draft_model_switch.py`: decides whether draft models may draft where that costs this node time.

Times are arguments; no I/O.
"""
