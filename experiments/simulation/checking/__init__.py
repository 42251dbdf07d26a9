"""The rules of every world with faults, and random worlds in which they are checked."""
