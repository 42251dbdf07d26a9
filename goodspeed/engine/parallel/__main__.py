"""The process of one rank of a split model: `python -m goodspeed.engine.parallel`, started by rank 0 only."""

import signal

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal signals all processes; this one ends with rank 0
        signal.signal(number, signal.SIG_IGN)

    from goodspeed.engine.parallel.following import run

    run()
