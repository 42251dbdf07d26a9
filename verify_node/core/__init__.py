"""The verify node as a state machine: events in, messages out, time as an argument.

`core.py` is the whole of it; the others are its parts. `invariants.py` says what must hold between two events.
"""
