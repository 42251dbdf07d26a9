"""The resources of processes: memory, files, sockets, threads (/proc); pages, sessions, peers (the nodes' /metrics).

One series of samples for each life of a process, and one over the whole run for each figure of the verify node.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")

VERIFY_METRICS = {  # the verify node's figures that have to come back to where they were
    "kv_cache_usage_perc": "pages (share)",
    "num_requests_running": "sessions running",
    "num_requests_waiting": "sessions waiting",
    "peers_connected": "peers",
    "clients": "clients",
}


@dataclass
class Series:
    """Samples of one figure."""

    times_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time_s: float, value: float) -> None:
        self.times_s.append(time_s)
        self.values.append(value)

    def after(self, time_s: float) -> "Series":
        """Returns the part of the series from then on."""
        kept = [(t, v) for t, v in zip(self.times_s, self.values, strict=True) if t >= time_s]
        return Series([t for t, _ in kept], [v for _, v in kept])


@dataclass(frozen=True)
class Life:
    """The life of a process between a start and its end."""

    name: str
    generation: int


@dataclass
class Records:
    """All samples of a run."""

    of_processes: dict[tuple[Life, str], Series] = field(default_factory=lambda: defaultdict(Series))
    of_verify: dict[str, Series] = field(default_factory=lambda: defaultdict(Series))

    def add_process(self, life: Life, pid: int, time_s: float) -> None:
        """A process that ends in this moment has no sample."""
        try:
            figures = process(pid)
        except OSError:
            return
        for name, value in figures.items():
            self.of_processes[life, name].add(time_s, value)

    def add_verify(self, metrics: dict[str, float], time_s: float) -> None:
        for metric, name in VERIFY_METRICS.items():
            self.of_verify[name].add(time_s, metrics.get(metric, 0.0))
        entries = sum(1 for name in metrics if name.startswith("client_sessions{"))
        self.of_verify["entries of clients"].add(time_s, entries)


def process(pid: int) -> dict[str, float]:
    """Resident memory in 10^6 bytes, open files and sockets, threads; OSError for a process that is gone."""
    status = dict(line.split(":", 1) for line in (PROC / str(pid) / "status").read_text().splitlines())
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {pid} has ended")
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) * 1024 / 1e6,
        "fds": len(list((PROC / str(pid) / "fd").iterdir())),
        "threads": int(status["Threads"]),
    }
