"""What a rank's process is told first: which part of which model to load."""

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank's part of a model; a line of JSON on its standard input."""

    model: str
    device: str  # cpu, or cuda: rank r has GPU r
    dtype: str
    threads: int  # of the CPU, for each rank
    rank: int = 0
    num_ranks: int = 1
    port: int = 0  # of the store, on the loopback interface
