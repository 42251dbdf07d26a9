"""A verify node's part in a fleet: the file that names the replicas, and the file in which it tells its own load.

- `member.py`: both files of one node.

Whoever keeps the fleet (`goodspeed-fleet`, or a person) writes the one and reads the other. Knows nothing about Ray,
messages or sessions.

Loads nothing of: torch, transformers, zmq, ray.
Imports nothing of: verify_node.core.
"""
