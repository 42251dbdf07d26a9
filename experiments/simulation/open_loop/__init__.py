"""Services under an open loop: when requests come, how hard their texts are to draft, and which of them were in time.

`traffic.py` reads recorded arrivals and rescales them, `mix.py` makes requests of several kinds of them, `uneven.py`
has positions that are easy and such that are hard, `tabled.py` rounds whose times were measured, `prefill_first.py` a
baseline, and `service.py` runs one world.
One rule: nothing here knows a policy by name; experiments choose policies.
"""
