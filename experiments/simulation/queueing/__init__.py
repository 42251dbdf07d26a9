"""A queueing model of texts that wait for few places: requests by recorded lengths and agreement, rounds, switches.

`requests.py` makes requests, `server.py` serves them in an order of `goodspeed/order` and counts. The clock is virtual.
"""
