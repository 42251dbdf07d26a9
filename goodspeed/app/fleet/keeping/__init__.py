"""What keeps the replicas of a fleet: processes that outlive whoever started them, and what is written down of them.

- `plan.py`: what replicas are started with; `folders.py`: where that is remembered.
- `processes.py`, `launch.py`: processes that outlive whoever started them, and are never mistaken for others.
- `keeper.py`: the supervisor of one replica; `roster.py`: what all of them report.

Knows nothing about Ray, nor about the command.

Loads nothing of: ray, torch, zmq.
"""
