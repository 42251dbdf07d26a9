"""The fleet as one of its replicas knows it: what it tells the others, and which sessions it sends to them.

- `load.py`: what this replica has to do, as it tells the others.
- `redirecting.py`: which sessions are to go on elsewhere, and what draft nodes are told of the fleet.
- `member.py`: the file that names the replicas, and the file in which this one tells its load.

Whoever keeps the fleet (`goodspeed-fleet`, or a person) writes the one file and reads the other. Knows nothing about
Ray, nor about what else is done with a session.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client, ray.
Imports nothing of: verify_node.core, verify_node.model, verify_node.watch.
"""
