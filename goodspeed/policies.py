"""Public import path of the scheduling policies; see `goodspeed/fair/policies`."""

from goodspeed.fair.policies import ClientState, Policy, create, fixed, gradient, load, names, random, register

__all__ = ["ClientState", "Policy", "create", "fixed", "gradient", "load", "names", "random", "register"]
