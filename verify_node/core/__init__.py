"""The verify node as a state machine: events in, messages out, time as an argument.

`core.py` is the state machine; the other modules are its parts.
"""
