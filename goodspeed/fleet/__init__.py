"""A fleet: several verify nodes (replicas) of one target model, and which of them a session goes to.

- `replicas.py`: what nodes know of each replica: its name, address and key, and what it has to do.
- `virtual.py`: whether a replica would promise a session its service level, by its summary.
- `routing.py`: where a session goes that its replica does not serve.
- `table.py`: the peers file, in which all of that is written down.
- `keeping.py`: what replicas report, and how many there should be.
"""
