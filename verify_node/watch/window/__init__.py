"""The verify node's window: a live page of its state for a browser (`goodspeed-verify --http HOST:PORT`).

Read-only: no request changes anything. See docs/WINDOW.md.

Only rooms that say so import: starlette.
"""
