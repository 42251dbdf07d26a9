"""`goodspeed-fleet`: several verify nodes of one model as Ray actors, which Ray starts and restarts.

No message between draft and verify node goes through Ray.
"""
