"""`python -m verify_node` is `goodspeed-verify`."""

import sys

from verify_node.cli import main

if __name__ == "__main__":
    sys.exit(main())
