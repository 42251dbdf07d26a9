"""`goodspeed-fleet`: several verify nodes of one model, started, watched over, added and ended, with Ray.

- `cli.py`: the command; `up.py` and `others.py` are its subcommands, `options.py` and `checks.py` what `up` is told.
- `keeping`: what keeps one replica, and what follows from all reports. It does not know Ray.
- `cluster`: that as Ray's actors, and a Ray of our own.

Ray starts nodes and watches over them. No message between a draft node and a verify node goes through it, and when it
is gone the nodes go on. Knows nothing about either node's code: it starts their command, and reads their files.

Imports nothing of: zmq, torch.
"""
