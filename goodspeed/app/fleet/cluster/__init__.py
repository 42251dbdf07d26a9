"""A fleet on Ray: keepers and roster as actors, what can be asked of them, and a Ray of our own.

- `actors.py`: keepers and roster as Ray's actors.
- `handles.py`: what can be asked of them from outside.
- `head.py`: a Ray of our own, started and ended. It does not import Ray, whose settings have to be there before.

Knows nothing about what a keeper does, nor about the command.

Only rooms that say so import: ray.
"""
