"""`python -m tests.faults.soak`: a system under random load and random faults for so many minutes.

Every text is held against what the target alone writes, everything that may grow is watched, and a promise that breaks
is an exit status of 1. The same seed makes the same schedule of faults, which is told at the beginning.
"""

import argparse
import json
import sys

from goodspeed.app.demo.processes import run_interruptible
from tests.faults.soak import report
from tests.faults.soak.plan import Plan
from tests.faults.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of load; starting and ending take one more")
    parser.add_argument("--seed", type=int, default=0, help="of faults, texts and users")
    parser.add_argument("--nodes", type=int, default=8, help="draft nodes; from 4 on all kinds are there")
    parser.add_argument("--texts", type=int, default=12, help="users: texts that are written at a time, at most")
    parser.add_argument("--gap-s", type=float, default=8.0, help="seconds between two faults, on average")
    parser.add_argument("--json", action="store_true", help="the report on one line")
    options = parser.parse_args()
    plan = Plan(options.minutes, options.seed, options.nodes, options.texts, options.gap_s)
    for fault in plan.faults():
        print(fault, file=sys.stderr)
    try:
        outcome = run_interruptible(soak(plan))
    except KeyboardInterrupt:
        return 130
    result = report.to_json(outcome)
    print(json.dumps(result, ensure_ascii=False, indent=None if options.json else 2))
    return 0 if result["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
