"""The verify node as a process: builds it from its settings, and runs rounds between messages.

`daemon.py` runs; `preflight.py` checks before anything is loaded, `assembly.py` builds.
"""
