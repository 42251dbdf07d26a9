"""The draft node as a process: builds it from its settings, and carries out the actions of the rules.

`daemon.py` runs; `preflight.py` checks before anything is loaded, `assembly.py` builds.
"""
