"""Hostile messages for long: `make fuzz MESSAGES=1000000`, or `python -m tests.fuzz --messages N [--keys K]`.

Progress goes to standard error; the last line of standard output is one JSON object: what was sent, by kind; what
became of it, by counters; resident memory of the verify node with its slope; honest texts, and their gaps with and
without hostile traffic. With --keys so many hostile keys are enrolled, and everything is encrypted. Exits with 1 when
an honest text was wrong.
"""

import argparse
import json
import sys

from tests.fuzz import live

PART = 50_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = live.run(
        options.messages,
        parts=max(1, options.messages // PART),
        seed=options.seed,
        num_keys=options.keys,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(report))
    return int(report["honest"]["num_wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
