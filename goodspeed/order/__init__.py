"""Who goes first where places are few: first come, least attained service, shortest job, and LAPS-SD.

Plain data in, a ranking out; times are arguments. The thing that is contended for may be slots of a draft node, places
in the verify node's memory, or servers of a queueing model. Knows nothing about sessions, messages or rounds.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, goodspeed.app,
goodspeed.command, goodspeed.engine, goodspeed.exact, goodspeed.node, goodspeed.wire.
"""

from goodspeed.order import fcfs, laps, las, sjf
from goodspeed.order.base import Order, create, names, register
from goodspeed.order.job import Job
from goodspeed.order.seats import Seats, seats
from goodspeed.order.stability import RateHistory

__all__ = [
    "Job",
    "Order",
    "RateHistory",
    "Seats",
    "create",
    "fcfs",
    "laps",
    "las",
    "names",
    "register",
    "seats",
    "sjf",
]
