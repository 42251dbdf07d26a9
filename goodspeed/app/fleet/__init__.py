"""`goodspeed-fleet`: several verify nodes of one model as Ray's actors, which Ray starts and restarts.

- `cli.py`: the command. `options.py`: what `up` is told. `head.py`: a fleet's folder, and a Ray of its own.
- `actors.py`: a replica, and the keeper of their table. No message between draft and verify node goes through Ray.
"""
