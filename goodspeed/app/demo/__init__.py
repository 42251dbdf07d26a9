"""`goodspeed demo`: one verify node and draft nodes as real processes on this machine, and users who ask over HTTP."""
