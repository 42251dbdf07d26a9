"""The `goodspeed` command: the demo, one model's texts, keys, models and their files, profiling and the fleet.

No node imports this package. The extra `app` installs what only `demo` needs.
"""
