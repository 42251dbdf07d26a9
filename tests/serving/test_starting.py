"""Signals while a command starts: no traceback, at most one line, and exit status 130; SIGTERM: 143."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
assert {*SCRIPTS} == {"goodspeed", "goodspeed-verify", "goodspeed-draft", "goodspeed-fleet"}
MODULES = {name: call.removesuffix(".__main__:main") for name, call in SCRIPTS.items()}

INTERRUPTED_AT = """
import importlib, os, runpy, signal, sys

class Interrupt:
    '''Sends SIGINT when a module is looked for whose name begins so, as if the user had pressed Ctrl-C then.'''

    def find_spec(self, name, path=None, target=None):
        if name.startswith(wanted) and not sent:
            sent.append(name)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
sent, wanted = [], sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
module, _, function = sys.argv.pop(1).partition(":")
if function:
    sys.exit(getattr(importlib.import_module(module), function)())
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Runs a console script (MODULE:FUNCTION) or a module as the command that it is, interrupted at an import."""


def interrupted_at(
    wanted: str, *words: str, program: str = INTERRUPTED_AT, prefix: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """prefix: words of a command that starts Python."""
    command = [*prefix, sys.executable, "-c", program, wanted, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("as_script", "wanted"), [(True, "goodspeed.serving.running"), (False, "numpy")])
def test_an_interrupt_among_the_imports_leaves_no_traceback(name: str, as_script: bool, wanted: str) -> None:
    ended = interrupted_at(wanted, SCRIPTS[name] if as_script else MODULES[name], "--help")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "words",
    [
        "verify_node.__main__:main --model tiny-target --bind tcp://127.0.0.1:0 --log-level=error",
        "draft_node.__main__:main --model tiny-draft-s --http 127.0.0.1:0 --log-level=error",
        "goodspeed.__main__:main generate --prompt river",
    ],
    ids=["verify", "draft", "generate"],
)
def test_nor_while_torch_is_imported(words: str) -> None:
    ended = interrupted_at("torch.nn", *words.split())
    assert ended.returncode == 130
    assert [line for line in ended.stderr.splitlines() if not line.startswith("goodspeed: loading")] == []


AS_PROCESS_1 = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")


def test_a_container_s_first_process_ends_on_sigterm() -> None:
    can_be_it = shutil.which("unshare") and not subprocess.run([*AS_PROCESS_1, "true"], capture_output=True).returncode
    if not can_be_it:  # also in CI, whose containers may forbid it to root
        pytest.skip("nothing can run as process 1: unshare is missing, or user namespaces are forbidden")
    program = INTERRUPTED_AT.replace("os.getpid(), signal.SIGINT", "os.getpid(), signal.SIGTERM")
    ended = interrupted_at("numpy", SCRIPTS["goodspeed-verify"], "--help", program=program, prefix=AS_PROCESS_1)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "")


def test_an_ignored_interrupt_stays_ignored() -> None:
    """As in a script's `goodspeed-verify &`."""
    program = INTERRUPTED_AT.replace("default_int_handler)", "SIG_IGN)")
    ended = interrupted_at("argparse", SCRIPTS["goodspeed"], "--help", program=program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: goodspeed")
