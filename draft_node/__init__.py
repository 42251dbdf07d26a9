"""The edge daemon: runs a small draft model, proposes tokens, and streams what the verify node confirms.

Imports nothing of: verify_node, experiments, tests, goodspeed.app.
Only rooms that say so import: prometheus_client.
"""
