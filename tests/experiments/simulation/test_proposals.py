"""Recordings: read as they were written, replayed as they were, and claimed by nobody who cannot know."""

import gzip
from random import Random

import msgspec
import pytest

from experiments.simulation.few_places import Kind, make
from experiments.simulation.texts import proposals
from experiments.simulation.texts.proposals import ModelPath, OffPath, Proposal, Recordings, Text, Title
from experiments.simulation.texts.recorded import RecordedText, replayed
from experiments.simulation.texts.text import draw, feed
from goodspeed.errors import ConfigError
from goodspeed.wire import probabilities

PROPOSALS = (Proposal(), Proposal(bytes([0, 3, 81]), 1), Proposal(bytes([5]), 1), Proposal(bytes([16]), 0))
PATH = ModelPath(
    ranks="0112",
    confidence=proposals.written([255, 0, 0, 16]),
    p=proposals.written([255, 0, 8, 48]),
    q=proposals.written([16, 0, 16, 16]),
    off_path=proposals.written([0b1100000]),
)
TITLE = Title(proposals.VERSION, "big", ("small",), max_tokens=4)
TEXT = Text(
    domain="code",
    temperature=0.0,
    seed=1,
    prompt_len=10,
    own=proposals.joined(PROPOSALS),
    history=proposals.joined(PROPOSALS[::-1]),
    models={"small": PATH},
)


def test_a_recording_is_read_as_it_was_written(tmp_path) -> None:
    assert proposals.parted(TEXT.own) == PROPOSALS
    paths = [tmp_path / name for name in ("one.gz", "two.gz")]
    for path in paths:
        proposals.save(TITLE, [TEXT], path)
    found = proposals.load(str(paths[0]))
    assert (found.title, found.texts) == (TITLE, (TEXT,))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(paths[0].read_bytes()))
    assert proposals.load(plain).texts == (TEXT,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"own": TEXT.own + ","}, "line 3: own has 5 positions; history has 4 positions"),
        ({"models": {"small": msgspec.structs.replace(PATH, p="!")}}, "line 3: .*small: p has 1 positions"),
        ({"models": {}}, "line 3: it has the draft models  instead"),
        ({"history": "a,b,c, "}, "line 3: ' ' is no code"),
        ({"models": {"small": msgspec.structs.replace(PATH, ranks="0119")}}, "line 3: Expected `str` matching"),
    ],
    ids=["short", "probabilities", "no model", "code", "rank"],
)
def test_a_damaged_line_is_named(change, message, tmp_path) -> None:
    path = tmp_path / "texts.jsonl"
    proposals.save(TITLE, [TEXT, msgspec.structs.replace(TEXT, **change)], path)
    with pytest.raises(ConfigError, match=message):
        proposals.load(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"kind": "agreements", "version": 2}\n', "damaged in line 1"),
        (b'{"kind": "proposals", "version": 1}\n', "has version 1, but this program reads 2; record it again"),
        (msgspec.json.encode(TITLE), "has no texts"),
        (gzip.compress(msgspec.json.encode(TITLE))[:-9], "is damaged: Compressed file ended"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
    ids=["another", "old", "empty", "cut", "no gzip"],
)
def test_a_file_of_something_else_is_refused(data, message, tmp_path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        proposals.load(path)


def test_a_file_that_is_not_there_is_named_with_the_command_that_makes_one(tmp_path) -> None:
    told = r"No such file or directory; `python -m experiments\.simulation\.record` makes"
    with pytest.raises(ConfigError, match=told):
        proposals.load(tmp_path / "none")


def test_what_a_draft_model_knew_and_what_the_target_makes_of_it() -> None:
    assert PATH.agreed == "0110"
    assert PATH.claims == pytest.approx([0.4, 1.0, 1.0, 0.7], abs=1e-4)
    assert PATH.ratios == pytest.approx([2**-14.9375, 1.0, 1.0, 2**-2])
    assert PATH.agreed_again() == ["1100000"]


def test_off_path_is_what_was_recorded_of_each_model() -> None:
    known = Recordings(proposals.SHIPPED, TITLE, (TEXT, TEXT))
    assert known.off_path("small", 0.0) == OffPath(agreed=2 / 7, second=1 / 2)
    right = msgspec.structs.replace(PATH, ranks="1111", off_path="")
    never_wrong = msgspec.structs.replace(TEXT, models={"small": right})
    assert Recordings(proposals.SHIPPED, TITLE, (never_wrong,)).off_path("small", 0.0) == OffPath(0.0, 0.0)


def test_what_a_recording_lacks_is_named() -> None:
    known = Recordings(proposals.SHIPPED, TITLE, (TEXT,))
    assert known.stand_in(0) == known.stand_in(1) == "small"
    with pytest.raises(ConfigError, match="no texts at temperature 1, only at 0"):
        known.at(1.0)
    with pytest.raises(ConfigError, match="no draft model, only n-grams"):
        Recordings(proposals.SHIPPED, msgspec.structs.replace(TITLE, draft_models=()), (TEXT,)).stand_in(0)
    with pytest.raises(ConfigError, match="has no texts of cooking, only of"):
        make(Kind(prompt_tokens=1, domains=["cooking"]), 1, 1.0, 0.0, Random(1))


def test_a_proposal_is_right_as_far_as_it_was() -> None:
    state = 12345
    first, _ = draw(state)
    found = replayed(Proposal(bytes([0, 16]), 1), state, 8, 0.3)
    assert found.probabilities == (1.0, 0.5)
    assert found.tokens[0] == first
    assert found.tokens[1] != draw(feed(state, first))[0]
    assert replayed(Proposal(bytes([0, 16]), 1), state, 8, 0.6).tokens == (first,)
    assert replayed(Proposal(bytes([0, 16]), 1), state, 1, 0.3).tokens == (first,)


def test_a_recorded_text_is_a_process_by_position() -> None:
    """Four tokens after a prompt of ten, then the next text; after the last one the first comes again."""
    short = msgspec.structs.replace(TEXT, own="!", history="!", models={"small": ModelPath("1", "!", "!", "!", "")})
    text = RecordedText([TEXT, short], "small", OffPath(agreed=0.3, second=0.1))
    assert [text.rate(position, 0, True) for position in range(10, 16)] == [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert text.rate(11, 1, False) == 0.3
    assert [text.second(position, True) for position in (10, 13, 14)] == [0.0, 1.0, 0.0]
    assert text.second(13, False) == 0.1
    assert [text.probabilities(position, 0) for position in (10, 11, 14)] == pytest.approx([0.4, 1.0, 1.0], abs=1e-4)
    assert text.proposal("own", 11) == text.proposal("history", 17) == PROPOSALS[1]
    assert text.proposal("own", 14) == Proposal(probabilities.encode([1.0]), 1)
