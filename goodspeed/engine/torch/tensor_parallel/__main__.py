"""The process of one rank of a split model, started by rank 0 only: `python -m` with this package's name."""

import signal

if __name__ == "__main__":
    # A terminal signals all processes; this one ends with rank 0.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    from goodspeed.engine.torch.tensor_parallel.following import run

    run()
