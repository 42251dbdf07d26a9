"""The fleet as one of its replicas knows it: what it tells the others, and which sessions it sends to them.

- `load.py`: what this replica has to do, as it tells the others.
- `redirecting.py`: which sessions are to go on elsewhere, and what draft nodes are told of the fleet.

Who brings the table of replicas here is not known to these two. Times are arguments, all by one clock.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client, ray.
Imports nothing of: verify_node.arms, verify_node.core, verify_node.target, verify_node.watch.
"""
