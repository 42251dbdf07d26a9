"""Counts the texts of two service levels in time under overload: in a steady load with drafts and without, in bursts.

**--loads steady**: three of eight draft nodes ask for the tier *urgent*, the others for *patient*. Urgent is a TPOT of
--tightness times the median of what plain decoding has taken so far, so that about half of plain's texts are late; the
patient tier's is three times as long. Every draft node writes one text after the other, so that eight are always open;
the same texts in all ways. The draft nodes have no models, since eight models on a few cores keep each other from
working: their histories begin with 15 other texts of each domain, which the target wrote at the same temperature. The
ways take turns:

- *plain*: nothing is drafted.
- *drafts*: what texts are owed comes first in every round, and then the drafted tokens that are worth their time.

Attainment is the share of a tier's texts that were in time, at their draft nodes; goodput, a draft node's tokens per
second. Wanted: *drafts* at least 1.3 times plain's attainment of the urgent tier, and 0.9 of its goodput of the other.

**--loads bursts**: requests come as in the recorded trace of a coding service, --overload times as many as plain
decoding serves in time (`slo_bursts.py`). Four draft nodes without models; the ways take turns with the same arrivals:

- *none*: nothing is promised; what texts are owed comes first.
- *dp*: the same, and the set of requests is promised that is worth most and can be kept.

Attainment counts from the moment at which a text was due; goodput is the tokens of texts in time a second, until the
last is done; medians of the repetitions. Wanted: 0.95 of what is promised attained. Every text is compared with what
the target alone writes; the exit status is 1 if one differs.

It takes about 3 minutes on two cores, with bursts 13 more; about a minute with --quick, which has both loads.
"""

import argparse
import sys
from typing import Any

from experiments.benchmarks import slo_bursts, slo_steady
from experiments.harness import benchmark
from goodspeed.embedded.prompts import NUM_DOMAINS
from goodspeed.serving.options import NO_MODEL

LOADS = ("steady", "bursts")


def parse() -> argparse.Namespace:
    parser = benchmark.parser("slo", __doc__, "both loads with two draft nodes, one short repetition")
    parser.add_argument("--loads", nargs="+", choices=LOADS, help=f"default: {LOADS[0]}")
    parser.add_argument("--tokens", type=int, default=64, help="length of every steady text (default 64)")
    parser.add_argument("--turns", type=int, default=3, help="steady texts of each draft node (default 3)")
    parser.add_argument("--repetitions", type=int, default=5, help="after one that warms up (default 5)")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    parser.add_argument("--earlier", type=int, default=15, help="other texts of each domain (default 15)")
    parser.add_argument("--urgent", type=int, default=3, help="draft nodes of the urgent tier (default 3)")
    parser.add_argument("--tightness", type=float, default=1.0, help="urgent TPOT over plain decoding's (default 1)")
    parser.add_argument("--draft-model", default=NO_MODEL, help="default: none, which drafts n-grams only")
    parser.add_argument("--duration-s", type=float, default=45.0, help="of a repetition's bursts (default 45)")
    parser.add_argument(
        "--overload", type=float, default=1.75, help="bursts: requests over what plain decoding serves (default 1.75)"
    )
    parser.add_argument("--open", type=int, default=16, help="bursts: texts at once that urgent is taken from")
    parser.add_argument("--texts", type=int, default=64, help="bursts: prompts to choose from, 128 at most")
    parser.set_defaults(clients=NUM_DOMAINS)
    options = parser.parse_args()
    options.loads = options.loads or (LOADS if options.quick else LOADS[:1])
    if options.quick:
        options.tokens, options.turns, options.repetitions, options.clients, options.urgent = 8, 1, 1, 2, 1
        options.earlier, options.duration_s, options.open, options.texts = 1, 1.0, 4, 4
    return options


def main() -> int:
    options = parse()
    found: dict[str, Any] = {"benchmark": "slo"}
    if "steady" in options.loads:
        found |= (steady := slo_steady.measure(options))
        slo_steady.show(steady)
    if "bursts" in options.loads:
        found["bursts"] = slo_bursts.measure(options)
        slo_bursts.show(found["bursts"])
    benchmark.report(options, found)
    return 1 if found.get("bursts", {}).get("num_different") else 0


if __name__ == "__main__":
    sys.exit(main())
