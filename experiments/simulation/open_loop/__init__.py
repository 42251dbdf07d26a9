"""Services under an open loop: when requests come, how hard their texts are to draft, and which of them were in time.

`traffic.py` reads recorded arrivals, rescales them, and has measured times of rounds; `mix.py` makes requests of
several kinds, whose positions are easy or hard to draft, `stages.py` requests with distributed lengths whose first
tokens are due. `rivals.py` has verify nodes to compare with, `service.py` runs one world, `fleet.py` several that
send requests to each other. `threshold.py` finds the highest load, `crowd.py` how long decisions about promises take.
Nothing here names a policy: experiments choose them.
"""
