"""Who may draft how much, by the name that other programs import. The code is in `goodspeed/fair/policies`."""

from goodspeed.fair.policies import ClientState, Policy, create, fixed, gradient, names, random, register, throughput

__all__ = ["ClientState", "Policy", "create", "fixed", "gradient", "names", "random", "register", "throughput"]
