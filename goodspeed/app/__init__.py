"""The `goodspeed` command: chat, demo, one model's texts, keys, models and their files, profiling and the fleet.

No node imports this package. The extra `app` installs the libraries that only `demo` and `chat` need.
"""
