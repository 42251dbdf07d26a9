"""The `goodspeed` command: the demo, one model's texts, keys, models and their files, profiling and the fleet.

No node imports this package. The extra `app` installs the HTTP client that only `demo` needs.
"""
