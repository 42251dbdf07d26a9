"""Nodes as forks of one process that has imported torch, transformers and both nodes: each start saves 3 s of CPU.

That process has no threads, and has computed nothing. A fork is a process like any other: it can be stopped and killed.
"""

import atexit
import multiprocessing
import os
import runpy  # noqa: TID251 runs nodes and benchmarks in forks
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module  # noqa: TID251 modules that tests and benchmarks name
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TextIO

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "draft_node.process.assembly",
        "draft_node.http.server",
        "draft_node.model.loading",
        "verify_node.process.assembly",
        "verify_node.watch.app",
        "transformers.models.llama.modeling_llama",
    ]
)


class Fork:
    """`python -m MODULE WORDS...`, with as much of `subprocess.Popen` as is needed."""

    def __init__(
        self,
        module: str,
        *words: str,
        reads: bool = False,
        stdout: int | None = None,
        stderr: int | None = None,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """reads: its standard input is a pipe, else empty. stdout, stderr: descriptors, by default pipes.

        settings: values of names in modules, for this process only.
        """
        self.stdin: TextIO | None
        source, self.stdin = _source() if reads else (os.open(os.devnull, os.O_RDONLY), None)
        (out, self.stdout), (err, self.stderr) = _sink(stdout), _sink(stderr)
        streams = (source, out, err)
        arguments = (module, words, dict(settings), tuple(map(_Passed, streams)))
        self._process = FORKS.Process(target=_run, args=arguments, daemon=True)
        with _without_main():
            self._process.start()
        for descriptor in streams:
            os.close(descriptor)

    def __enter__(self) -> "Fork":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self._process.exitcode

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Writes to its standard input, if that is a pipe; returns what it says until it ends."""
        with ThreadPoolExecutor() as threads:
            told = [threads.submit(pipe.read) if pipe else None for pipe in (self.stdout, self.stderr)]
            try:
                if self.stdin is not None:
                    with suppress(BrokenPipeError):  # it has ended
                        self.stdin.write(text)
                        self.stdin.close()
                self.wait(timeout)
            finally:
                self.kill()
        out, err = ("" if one is None else one.result() for one in told)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hides the main module: a fork needs nothing of it, and multiprocessing would import all of it again in each."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Passed:
    """A descriptor that goes to the fork."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self.descriptor),)


def _received(passed: Any) -> int:
    return int(passed.detach())


def _source() -> tuple[int, TextIO]:
    """Both ends of a pipe: the fork's, and ours."""
    reading, writing = os.pipe()
    return reading, os.fdopen(writing, "w")


def _sink(descriptor: int | None) -> tuple[int, TextIO | None]:
    if descriptor is not None:
        return os.dup(descriptor), None
    reading, writing = os.pipe()
    return writing, os.fdopen(reading)


def _run(module: str, words: tuple[str, ...], settings: dict[str, object], streams: tuple[int, ...]) -> None:
    """Runs a module as its command line does, and ends as an interpreter does."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", closefd=False)  # the old ones remember other files
    os.chdir(Path(__file__).parents[2])
    for name, value in settings.items():
        holder, _, attribute = name.rpartition(".")
        getattr(within := import_module(holder), attribute)  # an error where it is not there
        setattr(within, attribute, value)
    sys.argv = [module, *words]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()
