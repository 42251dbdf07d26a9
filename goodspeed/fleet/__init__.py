"""A fleet: several verify nodes (replicas) of one target model, and where a session goes.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client, ray.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, goodspeed.app, goodspeed.engine,
goodspeed.wire.zmq.
"""
