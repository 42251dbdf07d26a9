"""What a request asks for in time: its objectives, the tiers that name them, what is owed, and whether it was kept.

Plain data and pure functions: every event is given its time. Knows nothing about requests, messages or rounds.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time.
"""
