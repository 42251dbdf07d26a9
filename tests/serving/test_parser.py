"""Wrong words as one line with a hint, and helps in which every option has its group and its default."""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Any

import pytest

from draft_node import cli as draft_cli
from draft_node.config import DraftConfig
from experiments.harness import experiment as harness
from experiments.harness import runner
from goodspeed.app import cli
from goodspeed.app.fleet import cli as fleet_cli
from goodspeed.serving.config import Settings
from verify_node import cli as verify_cli
from verify_node.config import VerifyConfig

PARSERS = {made.prog: made for made in (each.build_parser() for each in (cli, verify_cli, draft_cli, fleet_cli))}


def all_parsers() -> Iterator[argparse.ArgumentParser]:
    """Yields the parsers of all commands and their subcommands."""
    waiting = list(PARSERS.values())
    while waiting:
        parser = waiting.pop()
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()


ALL = {parser.prog: parser for parser in all_parsers()}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("goodspeed-draft --sesions=3", "goodspeed-draft: unknown option --sesions; did you mean --max-sessions? See"),
        ("goodspeed-verify", "-verify: the following arguments are required: --model. See goodspeed-verify --help"),
        ("goodspeed-verify --model x --zzzzzz", "goodspeed-verify: unknown option --zzzzzz. See goodspeed-verify --he"),
        ("goodspeed generate --nonsense 3", "goodspeed generate: unknown option --nonsense. See"),  # not --seed
        ("goodspeed-verify --model", "goodspeed-verify: --model: expected one argument. See"),
        ("goodspeed keygen clien", "goodspeed keygen: KIND: invalid choice: 'clien' (choose from"),
        ("goodspeed-verify --model x -q", "goodspeed-verify: unknown word '-q'"),
        ("goodspeed-verify --model x --max-sessions many", "--max-sessions: 'many' is not a whole number"),
        ("goodspeed-verify --model x --memory-fraction all", "--memory-fraction: 'all' is not a number"),
        ("goodspeed verify --model x", "; `goodspeed-verify --model NAME` and"),
        ("goodspeed serve", "; `goodspeed-verify --model NAME` and `goodspeed-draft --model NAME"),
        ("goodspeed --port 80", "unknown option --port; `goodspeed-verify --model NAME` and `goodspeed-draft"),
        ("goodspeed-verify --port 80", "goodspeed-verify: unknown option --port"),
        ("goodspeed keygen user --fodler", "keygen user: unknown option --fodler; did you mean --folder? See"),
    ],
)
def test_a_wrong_word_is_one_line_with_a_hint(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *rest = words.split()
    with pytest.raises(SystemExit) as ended:
        PARSERS[program].parse_args(rest)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert line in err
    assert len(err.splitlines()) == 1


def test_values_that_look_like_options_are_taken_as_before() -> None:
    parsed = PARSERS["goodspeed"].parse_args("generate --prompt=--sesions --max-tok 3 --temperature -1".split())
    assert (parsed.prompt, parsed.max_tokens, parsed.temperature) == ("--sesions", 3, -1.0)
    assert PARSERS["goodspeed"].parse_args(["generate", "--prompt", "--a b"]).prompt == "--a b"


NOTHING = make_dataclass("Nothing", [])


def never(*arguments: object) -> Any:
    pytest.fail("nothing runs where the command line is wrong")


@pytest.mark.parametrize(
    "run",
    [lambda: runner.run_all("experiments.x", "about", []), lambda: harness.run("x", "about", never, never, NOTHING)],
    ids=["runner", "harness"],
)
def test_experiments_and_benchmarks_say_it_in_the_same_way(run, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--quik"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    said = "python -m experiments.x: unknown option --quik; did you mean --quick? See python -m experiments.x --help\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("parser", ALL.values(), ids=ALL)
def test_every_option_tells_its_default(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction | argparse._VersionAction):
            assert re.search(r"\((default: .+|required)\)$", action.help or ""), action.option_strings
            assert "None" not in (action.help or "")
    assert "exit status:" in parser.format_help()


@pytest.mark.parametrize("name", ["goodspeed-verify", "goodspeed-draft", "goodspeed demo", "goodspeed-fleet up"])
def test_a_long_help_has_groups_an_example_and_a_short_usage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = ALL[name].format_help()
    groups = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    assert groups[0] == "options"  # --help and --version
    assert groups[-2:] == ["example", "exit status"]
    assert 6 <= len(groups) <= 12
    assert len(text.splitlines()) <= 96, "two screens"
    assert text.splitlines()[0].endswith(" [options]")
    options = text[text.index("\noptions:") : text.index(f"\n{groups[1]}:")]
    assert set(re.findall(r"--\w+", options)) <= {"--help", "--version"}
    assert f"\n  {name} " in text[text.index("\nexample:") :]


@pytest.mark.parametrize(("name", "settings"), [("goodspeed-verify", VerifyConfig), ("goodspeed-draft", DraftConfig)])
def test_the_options_that_most_people_need_come_first(name: str, settings: type[Settings]) -> None:
    text = ALL[name].format_help()
    heading, *rest = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)[1:]
    first = text[text.index(f"\n{heading}:") : text.index(f"\n{rest[0]}:")]
    assert heading == "most used"
    flags = ["--" + field.replace("_", "-") for field in settings.MOST_USED]
    assert re.findall(r"^  (--[\w-]+)", first, re.MULTILINE) == flags
    assert len(settings.MOST_USED) == 6
