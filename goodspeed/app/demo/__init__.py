"""`goodspeed demo`: one verify node and several draft nodes as real processes on this machine, watched live."""
