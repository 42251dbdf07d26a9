"""The verify node's window: what it does now, for people with a browser (`goodspeed-verify --http HOST:PORT`).

Only looks; nothing that arrives here changes anything. Knows nothing about tensors. See docs/WINDOW.md.

Only rooms that say so import: starlette.
"""
