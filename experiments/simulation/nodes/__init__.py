"""The daemons of the simulated world: what `process/daemon.py` of both nodes does, on its clock."""
