"""A queueing model of texts that wait for few places: requests by recorded lengths and agreement, rounds, switches.

`requests.py` makes requests, `server.py` serves them at the places that `places.py` gives in an order of
`verify_node/scheduler/orders`, and counts. The clock is virtual.
"""
