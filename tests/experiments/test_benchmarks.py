"""Every benchmark tells what it measures and for how long; that each runs is for `make bench-quick`, which CI runs."""

import ast
from importlib import import_module

import pytest

from experiments.benchmarks.__main__ import benchmarks, has_main


@pytest.mark.parametrize("name", benchmarks())
def test_help_says_what_is_measured_and_for_how_long(name, capsys, monkeypatch):
    module = import_module(f"experiments.benchmarks.{name}")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"python -m experiments.benchmarks.{name} " in text
    for option in ("--quick", "--json"):
        assert f"[{option}]" in text
    first_sentence = module.__doc__.strip().splitlines()[0]
    assert first_sentence in text
    assert "It takes about " in text
    assert "with --quick" in text.partition("It takes about ")[2]


def test_a_module_with_a_main_is_a_benchmark():
    assert {"end_to_end", "ngram", "slo"} <= set(benchmarks())
    assert has_main(ast.parse("def main(): ..."))
    assert not has_main(ast.parse("def other(): ..."))
