"""The examples of the documents, pasted in order into one shell, as a new user would.

Every block that is marked `sh` or `python` is pasted, but for those after a comment `<!-- not pasted: why -->`. The
shell says which of its commands failed; a document of which one fails does not tell its reader what works.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"(<!-- not pasted: [^\n]+ -->\n+)?```(sh|python)\n(.*?)```", re.DOTALL)
FAILED = "this command failed: "
TROUBLE = ("Traceback", "no such job", "command not found", "No such file", "Address already in use")
DEADLINE_S = 600.0
BEGIN = f"set -m; trap 'echo \"{FAILED}$BASH_COMMAND\" >&2' ERR"
BACKGROUND = re.compile(r"(?<![&|])&( \w+=\$!)?$", re.MULTILINE)
NOTED = r'& pids+=" $!";\1'
END = f"""trap - ERR; kill $(jobs -p) 2>/dev/null
for pid in $pids; do
    wait $pid; status=$?  # bash keeps the status of a job that was waited for, too
    case $status in 0 | {128 + signal.SIGTERM}) ;; *) echo "{FAILED}a background job, with status $status" >&2 ;; esac
done; exit 0"""


def script(document: Path) -> str:
    """The blocks that are pasted."""
    blocks = [(language, text) for skip, language, text in BLOCK.findall(document.read_text()) if not skip]
    assert blocks, f"{document.name} has no examples"
    pasted = [noted(text) if language == "sh" else f"python - <<'PYTHON'\n{text}PYTHON\n" for language, text in blocks]
    return "\n".join(pasted)


def noted(commands: str) -> str:
    """The same, with the numbers of its background jobs in $pids."""
    return BACKGROUND.sub(NOTED, commands)


def paste(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Returns what one shell said to all of it, in a folder that has the environment of a checkout.

    It has job control, as one that somebody types into.
    """
    (folder / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{folder}/.venv/bin:{environment['PATH']}"
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    bash = ["bash", "--norc", "--noprofile"]
    process = subprocess.Popen(bash, cwd=folder, env=environment, text=True, **pipes)
    try:
        out, err = process.communicate(f"{BEGIN}\n{text}\n{END}\n", timeout=DEADLINE_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
            process.kill()
            process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


PASTED = ["README.md", *(f"docs/{name}.md" for name in ("HTTP", "KEYS", "POLICY", "SLO", "SOURCE"))]


@pytest.mark.parametrize("name", PASTED)
def test_all_examples_work_in_order_in_one_shell(name: str, tmp_path: Path) -> None:
    said = paste(script(ROOT / name), tmp_path)
    told = f"{said.stdout}\n--- standard error ---\n{said.stderr}"
    failed = [line for line in said.stderr.splitlines() if line.startswith(FAILED)]
    assert not failed, told
    assert not [word for word in TROUBLE if word in told], told


def test_an_example_that_fails_is_found(tmp_path: Path) -> None:
    said = paste("true\nkill %1\n", tmp_path)
    assert f"{FAILED}kill %1" in said.stderr


@pytest.mark.parametrize("commands", ["(exit 3) &\nsleep 1\n", "(exit 3) & job=$!\nwait $job || true\n"])
def test_a_background_job_that_fails_is_found(commands: str, tmp_path: Path) -> None:
    said = paste(noted(commands), tmp_path)
    assert f"{FAILED}a background job, with status 3" in said.stderr


def test_a_background_job_that_is_left_or_ended_is_no_failure(tmp_path: Path) -> None:
    said = paste(noted("sleep 60 &\nsleep 60 & job=$!\nkill $job; wait $job || true\n"), tmp_path)
    assert FAILED not in said.stderr
