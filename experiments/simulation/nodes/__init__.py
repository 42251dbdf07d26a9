"""The daemons of the simulated world: what `verify_node/daemon.py` and `draft_node/daemon.py` do, on its clock."""
