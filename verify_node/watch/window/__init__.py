"""The verify node's window: what it does now, for people with a browser (`goodspeed-verify --http HOST:PORT`).

Only looks; nothing that arrives here changes anything. See docs/WINDOW.md.
"""
