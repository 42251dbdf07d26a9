"""Orders of jobs that contend for places, for example KV pages.

- `base.py`: the job, the order, and the registry of orders by name.
- `fcfs.py`: first come, first served. `laps.py`: LAPS-SD.
"""

from verify_node.scheduler.orders import fcfs, laps
from verify_node.scheduler.orders.base import AGING_S, ORDERS, Job, Order

__all__ = ["AGING_S", "ORDERS", "Job", "Order", "fcfs", "laps"]
