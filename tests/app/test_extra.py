"""The demo and the chat say what to install where the extra is missing. The rooms' rules hold that no node needs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from goodspeed.app import cli
from goodspeed.errors import NotInstalled

ROOT = Path(__file__).parents[2]
WITHOUT = f"""
import importlib.util, sys
missing = {cli.LIBRARIES!r}
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else find_spec(name, package)
"""


def program(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", WITHOUT + text], cwd=ROOT, capture_output=True, text=True)


def test_the_extra_is_what_the_project_file_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.split(">")[0] for line in project["optional-dependencies"]["app"]]
    assert tuple(named) == cli.LIBRARIES
    assert not [line for line in project["dependencies"] if line.startswith(cli.LIBRARIES)]


@pytest.mark.parametrize("words", [["demo"], ["chat"]])
def test_without_it_the_demo_and_the_chat_say_what_to_install(words: list[str]) -> None:
    ended = program(f"from goodspeed.app import cli\nsys.argv = ['goodspeed', *{words!r}]\nsys.exit(cli.main())")
    assert ended.returncode != 0
    assert ended.stderr.splitlines() == [
        f"goodspeed: `goodspeed {words[0]}` needs rich, matplotlib, httpx2, which are not installed; "
        "in GoodSpeed's folder, try: pip install -c constraints.txt '.[app]'"
    ]


def test_one_missing_package_is_not_several() -> None:
    told = str(NotInstalled("`goodspeed demo`", "app", "matplotlib"))
    assert told.startswith("`goodspeed demo` needs matplotlib, which is not installed; ")
