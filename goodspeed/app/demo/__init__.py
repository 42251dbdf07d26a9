"""`goodspeed demo`: one verify node and several draft nodes as real processes on this machine, watched live.

Knows nothing about the nodes' code: it starts their commands, and reads the events that they print.

Only rooms that say so import: httpx2, matplotlib, rich.
"""
