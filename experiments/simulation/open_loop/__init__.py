"""Services under an open loop: when requests come, how hard their texts are to draft, and which of them were in time.

`traffic.py` reads recorded arrivals and rescales or thins them, `mix.py` makes requests of several kinds of them,
`stages.py` such whose lengths (`lengths.py`) are distributed and whose first tokens are due, `uneven.py` has positions
that are easy and such that are hard, `tabled.py` rounds whose times were measured, `prefill_first.py` and
`decode_first.py` are baselines, `service.py` runs one world, and `fleet.py` several that send requests to each other.
`threshold.py` finds the highest load, and `crowd.py` measures how long decisions about promises take.
One rule: nothing here knows a policy by name; experiments choose policies.
"""
