"""Promises at the verify node: the book of them, who is promised (`decide`), and what the next round owes (`allot`).

`verify_node/promises` calls, with the same clock in `now` everywhere:

- `decide(book, requests, now, ...)` for requests that ask for a promise, and `Book.promise` for those that get one;
- `allot(book, now, ...)` before a round, which says how many tokens it may carry, how many of them each promised
  prompt gets, who goes first, and whose memory is not to be taken; what is left is for best effort;
- `Book.delivered` after it, `Book.read_again` where what is left to read may have changed, and `Book.forget` when a
  text is over.

Pure: nothing but the book's methods changes it. Knows nothing about sessions, messages, rounds' making, clocks or
tensors. The mathematics is in `goodspeed/admission`.

Loads nothing of: torch, transformers, zmq, fastapi, uvicorn, prometheus_client.
Imports nothing of: asyncio, datetime, selectors, socket, subprocess, threading, time, verify_node.core,
verify_node.scheduler, verify_node.session, verify_node.model, verify_node.watch.
"""

from verify_node.admission.allotting import Allotment, allot
from verify_node.admission.book import Book, Promise, Request
from verify_node.admission.deciding import Tier, decide

__all__ = ["Allotment", "Book", "Promise", "Request", "Tier", "allot", "decide"]
