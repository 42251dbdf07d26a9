"""A verify node with settings that have no option: `python -m tests.verify_node.with_settings JSON OPTIONS...`.

JSON is an object of `VerifyConfig`'s fields, such as {"kv_pages": 20}. The rest are options of `goodspeed-verify`.
"""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from typing import Any

from goodspeed.serving.config import from_namespace
from verify_node import cli


def main() -> int:
    own = json.loads(sys.argv.pop(1))

    def with_own(kind: Any, namespace: Namespace) -> Any:
        return replace(from_namespace(kind, namespace), **own)

    vars(cli)["from_namespace"] = with_own
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
