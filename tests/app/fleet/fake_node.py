"""A stand-in for a verify node: takes its options, and tells a load until told to leave.

Files beside its status file say how it behaves: `fail` ends it at its start, `hang` silences it.
"""

import json
import signal
import sys
import time
from pathlib import Path

TELL_S = 0.05


def main() -> None:
    options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
    status = Path(options["status"])
    if (status.parent / "fail").exists():
        sys.exit("no memory\nfake: cannot start")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    number = 0
    while True:
        if not (status.parent / "hang").exists():
            number += 1
            new = status.with_suffix(".new")
            new.write_text(json.dumps({"told_at": time.time(), "context_tokens": number, "max_sessions": 8}))
            new.replace(status)
        time.sleep(TELL_S)


if __name__ == "__main__":
    main()
