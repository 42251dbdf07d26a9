"""Hostile messages for long: `make fuzz MESSAGES=1000000`, or `python -m tests.fuzz --messages N [--keys K]`.

Progress goes to standard error; the last line of standard output is one JSON object: what was sent, by kind; what
became of it, by counters; resident memory of the verify node with its slope; honest texts, and their gaps with and
without hostile traffic. With --keys so many hostile keys are enrolled, and everything is encrypted. Exits with 1 when
an honest text was wrong or memory grew. What honest texts lose in time is told, with whether it is more than is wanted,
and not judged: it depends on the machine, which they share with the hostile ones.
"""

import argparse
import json
import sys
from functools import partial

from tests.fuzz import live

PART = 20_000
WANTED = 1.10  # the most that the p95 of honest gaps beside hostile messages may be, as a multiple of that without them


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = max(1, options.messages // PART)
    settings = {"parts": parts, "seed": options.seed, "num_keys": options.keys}
    tell = partial(print, file=sys.stderr, flush=True)
    report = live.run(options.messages, **settings, progress=tell)
    grew = report["memory"]["growth_mib"] > live.MAX_GROWTH_MIB
    reached = report["gaps"]["median_ratio"] <= WANTED
    print(json.dumps({**report, "wanted_ratio": WANTED, "reached": reached, "grew": grew}))
    return int(grew or report["honest"]["num_wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
