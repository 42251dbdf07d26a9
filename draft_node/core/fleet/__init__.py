"""Several verify nodes: which links there are, which one each session is on, and where it goes when that one is away.

- `directory.py`: the replicas that this node may connect to, and what is known of their targets.
- `links.py`: the links in use, the home among them, where new sessions go; and which link each session is on.
- `openings.py`: opens sessions as these say, and has links made and given up.

Times are arguments.
"""
