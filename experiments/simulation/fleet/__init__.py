"""Worlds with several verify nodes of one fleet.

- `world.py`, `draft.py`: such a world, and a draft node in it; `table.py`: what verify nodes are told of each other.
- `worlds.py`: settings drawn from a seed; `checks.py`: what must hold in all of them.

`experiments/simulation/faults.py --fleet` is the command. Nodes' rules are those that serve.
"""
