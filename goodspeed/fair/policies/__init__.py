"""Policies, which divide the verify node's budget of drafted tokens among clients."""

from goodspeed.fair.policies import fixed, gradient, random
from goodspeed.fair.policies.base import ClientState, Policy
from goodspeed.fair.policies.registry import OwnPolicy, create, load, names, register

__all__ = ["ClientState", "OwnPolicy", "Policy", "create", "fixed", "gradient", "load", "names", "random", "register"]
