"""The draft node as a process: builds it from its settings, and carries out the actions of the rules.

`preflight.py` checks before anything is loaded, `assembly.py` builds, `daemon.py` runs with `connections.py`;
`connection_status.py` reports to the operator.
"""
