"""The verify node's observers: metrics, the live page, recordings, status lines about draft nodes.

Nothing here affects the node. The page is read-only: no request changes state (docs/METRICS.md).
"""
