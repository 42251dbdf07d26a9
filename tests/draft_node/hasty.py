"""A draft node that drains for 0.2 s only: `python -m tests.draft_node.hasty OPTIONS...`."""

import sys

from draft_node import cli
from draft_node.http import server

if __name__ == "__main__":
    vars(server)["DRAIN_S"] = 0.2
    sys.exit(cli.main())
