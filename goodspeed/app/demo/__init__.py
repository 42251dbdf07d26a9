"""`goodspeed demo`: one verify node and several draft nodes as real processes on this machine, watched live.

Imports neither node: it starts their commands, and knows them by the events that they print.
"""
