"""Runs every command of the project: parses, runs, and ends with a clear error and exit status.

The exit statuses are in `starting.py`. Every ConfigError counts as wrong usage.
"""

import argparse
import asyncio
import ctypes
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from goodspeed.errors import ConfigError, GoodSpeedError, OutputError, reason
from goodspeed.serving import output, starting
from goodspeed.serving.config import Settings, add_options, group_of
from goodspeed.serving.events import LOG_LEVELS, Reporter, setup_logging
from goodspeed.serving.loop import leave
from goodspeed.serving.parser import CommandLine
from goodspeed.serving.starting import FAILED, INTERRUPTED, UNREAD, UNWRITABLE, USAGE
from goodspeed.untrusted import sanitize

if TYPE_CHECKING:  # HTTP is imported only where it is served
    from goodspeed.serving.web.address import BoundAddress

KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}
"""Capacity of oneDNN's and torch's caches of compiled kernels, by environment variable; torch reads them when it loads.

The caches hold one kernel of up to 0.9 MB per weight and batch size; the default of 1,024 would take hundreds of
megabytes after an hour, for batch sizes that seldom recur. Measured (`experiments/LOG.md`): with 128 a verify node uses
70 MB more than with 32 and is 4 to 7 % faster; with 1,024 it uses 220 MB more than with 128 and is another 8 to 10 %
faster."""

HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
"""Has torch ask Linux for huge pages: a forward pass that reads 466 MB of weights takes 12 % less time with them."""

LOGGING = "logging"
"""Help heading of the options below."""

BAD_PATH = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR})
"""Errors that say that a path may not be looked at, or cannot exist."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a program in good order. A closed terminal sends SIGHUP, often twice: it ends nothing at once."""


def add_common_options(
    parser: argparse.ArgumentParser, json: str = "JSON events on standard output, last the result (default: off)"
) -> None:
    """Adds the options common to long-running commands. json: help of `--json`."""
    add_log_option(parser)
    group_of(parser, LOGGING).add_argument("--json", action="store_true", help=json)


def daemon_parser(name: str, settings: type[Settings], *, description: str, example: str) -> argparse.ArgumentParser:
    parser = CommandLine(prog=name, description=description, example=example, version=True)
    add_options(parser, settings)
    add_common_options(parser)
    return parser


def add_log_option(parser: argparse.ArgumentParser) -> None:
    group_of(parser, LOGGING).add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="warning",
        help="debug, info, warning or error lines on standard error (default: warning)",
        metavar="LEVEL",
    )


def run(
    name: str, parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int], *, daemon: bool = False
) -> int:
    """Parses the command line and runs the body; returns the exit status. A GoodSpeedError prints one line.

    Unwraps the exception groups of task groups; no other code has to.

    daemon: the body runs `until_signal`. A signal before that ends the process at once, and output never blocks.
    """
    output.guard(name, daemon=daemon)
    status = 0
    try:
        with starting.running(daemon=daemon):
            status = _run(name, parser, body)
    except* GoodSpeedError as group:
        error = first_of(group)
        status = UNWRITABLE if isinstance(error, OutputError) else USAGE if isinstance(error, ConfigError) else FAILED
        print(f"{name}: {error}", file=sys.stderr)
    except* BrokenPipeError:
        status = UNREAD
    except* KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        output.finish()  # the traceback of an unnamed error comes last
    return leave(status)


def prepare(log_level: str, name: str) -> None:
    """Sets environment and logging of a command's process; must run before torch is loaded. name: of the command."""
    for variable, number in {**KERNELS, **HUGE_PAGES}.items():
        os.environ.setdefault(variable, number)
    setup_logging(log_level, name)


def _run(name: str, parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], int]) -> int:
    """Parses and runs; raises a failure of standard output, unless another error is raised.

    ConfigError for a path that may not be looked at, or that cannot exist.
    """
    try:
        namespace = parser.parse_args()
        prepare(getattr(namespace, "log_level", "warning"), name)
        status = body(namespace)
    except SystemExit:  # for example after --help
        output.check()
        raise
    except OSError as error:
        if error.errno not in BAD_PATH or not isinstance(error.filename, str | bytes):
            raise
        raise ConfigError(f"{sanitize(os.fsdecode(error.filename))}: {reason(error)}") from None
    output.check()
    return status


def first_of(error: BaseException) -> BaseException:
    """Returns the first error of a group and of the groups in it; the others are consequences of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def stop_signals() -> list[signal.Signals]:
    """Returns the SIGNALS to handle: all, but not SIGHUP where it is ignored, as under nohup."""
    return [one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]


async def until_signal(serving: Coroutine[None, None, None]) -> bool:
    """Runs a daemon until it ends or until one of SIGNALS cancels it; True if a signal did.

    A second SIGINT or SIGTERM ends the process at once, even while a model blocks the event loop. A failure of standard
    output cancels the daemon and is raised.
    """
    task, loop = asyncio.ensure_future(serving), asyncio.get_running_loop()
    handled, is_told = stop_signals(), False

    def release() -> None:
        output.stdout().on_failure(None)
        for number in handled:
            loop.remove_signal_handler(number)

    def interrupt() -> None:
        nonlocal is_told
        is_told = True
        release()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Not by a KeyboardInterrupt: the process would still wait for the model thread.
        starting.end_at_once((signal.SIGINT, signal.SIGTERM))
        task.cancel()

    for number in handled:
        loop.add_signal_handler(number, interrupt)
    output.stdout().on_failure(lambda: loop.call_soon_threadsafe(task.cancel))
    gc.collect()
    gc.freeze()  # long-lived objects: each later collection would take 0.25 s to scan them
    # Loading a model leaves some 50 MB between used blocks; only the GNU C library gives them back to Linux.
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    try:
        await task
    except asyncio.CancelledError:
        if not is_told:
            output.stdout().check()
            raise
    finally:
        gc.unfreeze()
        if not is_told:
            release()
    return is_told


def warn_trusted_network(address: str) -> None:
    """Prints a loud warning about a wire without encryption and authentication."""
    line = "!" * 100
    text = f"--trusted-network: {address} is open to its network WITHOUT keys or encryption; anybody there can use it."
    print(f"{line}\n{text}\n{line}", file=sys.stderr, flush=True)


def bind_http(http: str | None, api_key: str | None) -> "BoundAddress | None":
    """Binds the address of --http, with the keys of the file `api_key`. http: None returns None."""
    if http is None:
        return None
    from goodspeed.serving.web import address

    return address.bind_http(http, api_key)


def find_model(
    name: str, reporter: Reporter, device: str = "cpu", dtype: str = "auto", num_ranks: int = 1, engine: str = "auto"
) -> None:
    """Downloads a hub model unless it is on disk; raises a GoodSpeedError if there is none, or nothing to run it so."""
    from goodspeed.engine.model_files import finding

    finding.refuse_settings(name, device, dtype, num_ranks, engine)
    if engine in finding.ENGINES:
        finding.find_model(name, reporter.say)
