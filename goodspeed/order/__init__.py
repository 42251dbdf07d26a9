"""Who goes first where places are few: first come, first served, or LAPS-SD.

Plain data in, a ranking out; times are arguments. Places are pages of the verify node's memory, or
servers of a queueing model.
"""

from goodspeed.order import laps
from goodspeed.order.base import Job, Order, Seats, create, names, register, seats
from goodspeed.order.laps import RateHistory

__all__ = ["Job", "Order", "RateHistory", "Seats", "create", "laps", "names", "register", "seats"]
