"""The `goodspeed` command: chat, demo, generation with one model, keys, models and their files, profiling and the fleet.

No node imports this package. The extra `app` installs the libraries that only `demo` and `chat` need.
"""
