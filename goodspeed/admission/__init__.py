"""Admission: which requests can be promised their service levels, so that every promise can be kept (SLOs-Serve).

Numbers in, decisions out; policies are chosen by name, and times are durations from now. Knows nothing about sessions,
messages, clocks, or how a round's time is modelled: it is told how many tokens rounds of a length carry.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, goodspeed.app,
goodspeed.command, goodspeed.engine, goodspeed.exact, goodspeed.node, goodspeed.wire.
"""

from goodspeed.admission.asks import Ask
from goodspeed.admission.budget import Pace
from goodspeed.admission.policies import admit, can_keep, names

__all__ = ["Ask", "Pace", "admit", "can_keep", "names"]
