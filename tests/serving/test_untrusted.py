"""A peer's words as they are told: whole sentences, and neither commands of a terminal nor pages of them."""

import subprocess
from pathlib import Path

import pytest

from goodspeed.untrusted import MAX_CHARS, python_module, sanitize


@pytest.mark.parametrize(
    "sentence",
    [
        "this draft node's key is not enrolled (ZAP 400): copy ana.pub into the verify node's --enrolled folder",
        "this key is enrolled as 'eve', not as 'bob' (wrong_name); use the name that is enrolled, or enrol the other",
        "this key is enrolled as 'eve-', not as '-bob' (wrong_name); use the name that is enrolled, or enrol the other",
        "the nodes' folder is not the one that was meant, and this sentence goes on for more than forty characters",
    ],
)
def test_apostrophes_quote_nothing(sentence: str) -> None:
    assert sanitize(sentence) == sentence


def test_long_quotations_are_cut_and_what_follows_them_stays() -> None:
    assert sanitize(f"the node's word '{'x' * 40}' is unknown; try 'y'") == "the node's word '...' is unknown; try 'y'"
    assert sanitize(f"the node's word '{'x' * 39}' is") == f"the node's word '{'x' * 39}' is"
    assert sanitize("it begins '" + "x" * 2000) == "it begins '...'"


def test_long_and_unprintable_text_is_made_fit_for_a_terminal() -> None:
    assert sanitize("no\x1b[2J\nroot: all is well") == "no?[2J?root: all is well"
    told = sanitize("a word " * 500)
    assert len(told) == MAX_CHARS
    assert told.endswith("...")


def test_a_new_process_finds_an_uninstalled_checkout_and_no_other_files_of_its_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    python, *words = python_module("goodspeed")
    uninstalled = subprocess.run([python, "-S", *words, "--version"], capture_output=True, text=True)
    assert "No module named goodspeed" not in uninstalled.stderr
    (tmp_path / "json.py").write_text("raise SystemExit('the working directory was imported')")
    monkeypatch.chdir(tmp_path)
    subprocess.run([*python_module("json.tool"), "--help"], capture_output=True, check=True)
