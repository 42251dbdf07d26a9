"""`python -m draft_node` is `goodspeed-draft`."""

import sys

from draft_node.cli import main

if __name__ == "__main__":
    sys.exit(main())
