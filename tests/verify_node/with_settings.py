"""A verify node with settings that have no option: `python -m tests.verify_node.with_settings JSON OPTIONS...`.

JSON is an object of `VerifyConfig`'s fields, such as {"kv_pages": 20}; with `round_s` the node is told that every round
takes as many seconds, instead of measuring. The rest are options of `goodspeed-verify`.
"""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from typing import Any

from goodspeed.fair.round_time import Linear, Roofline, Sample
from goodspeed.serving.config import from_namespace
from goodspeed.serving.measuring.profiler import Profile
from verify_node import cli
from verify_node.process import costs


def main() -> int:
    own = json.loads(sys.argv.pop(1))
    if round_s := own.pop("round_s", None):
        vars(costs)["measure"] = lambda config, *_: made_up(config.model, round_s)

    def with_own(kind: Any, namespace: Namespace) -> Any:
        return replace(from_namespace(kind, namespace), **own)

    vars(cli)["from_namespace"] = with_own
    return cli.main()


def made_up(model: str, round_s: float) -> Profile:
    """A profile by which drafted tokens take no time."""
    where: Any = {"device": "cpu", "hardware": "", "engine": "torch", "dtype": "float32", "threads": 1, "versions": {}}
    fitted: Any = {"roofline": Roofline((Linear(fixed_s=round_s),)), "roofline_r2": 1.0}
    return Profile(model=model, num_passes=0, wall_s=0.0, samples=[Sample(512, 1, 0, round_s)], **where, **fitted)


if __name__ == "__main__":
    sys.exit(main())
