"""`goodspeed-fleet`: several verify nodes of one model, started, watched over, added and ended, with Ray.

- `cli.py`: the command; `up.py` and `others.py` are its subcommands, `options.py` and `checks.py` what `up` is told.
- `plan.py`: what a fleet's replicas are started with; `folders.py`: where it is remembered.
- `processes.py`, `launch.py`: processes that outlive whoever started them, and are never mistaken for others.
- `keeper.py`: the supervisor of one replica; `roster.py`: what all of them report. Neither knows Ray.
- `actors.py`, `cluster.py`: both as Ray's actors, and what can be asked of them; `head.py`: a Ray of our own.

Ray starts nodes and watches over them. No message between a draft node and a verify node goes through it, and when it
is gone the nodes go on. Knows nothing about either node's code: it starts their command, and reads their files.

Only rooms that say so import: ray.
Imports nothing of: zmq, torch.
"""
