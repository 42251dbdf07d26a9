"""What every command line of the project does alike: parse, run, and end with a clear error and exit status.

Exit status 0: done. 1: a named error, said on standard error. 2: wrong usage (argparse). 130: interrupted.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine

from goodspeed.errors import GoodSpeedError
from goodspeed.events import LOG_LEVELS, setup_logging


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Options of every long-running command."""
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning", help="log lines on standard error")
    parser.add_argument("--json", action="store_true", help="JSON events on standard output, a result as the last line")


def run(name: str, parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int]) -> int:
    """Parses the command line and runs the body; a named error is one line, never a traceback."""
    namespace = parser.parse_args()
    setup_logging(getattr(namespace, "log_level", "warning"))
    try:
        return body(namespace)
    except GoodSpeedError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output is gone, and so are we
        return 141


async def until_signal(serving: Coroutine[None, None, None]) -> None:
    """Runs a daemon until it ends by itself, or is cancelled by SIGINT or SIGTERM."""
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second signal does what it always does


def warn_trusted_network(address: str) -> None:
    """Loud, on purpose: nothing is encrypted and nobody is authenticated."""
    line = "!" * 100
    text = f"--trusted-network: {address} is open to its network WITHOUT keys or encryption; anybody there can use it."
    print(f"{line}\n{text}\n{line}", file=sys.stderr, flush=True)
