"""Recorded proposals: read as they were written, replayed as they were, and claimed by nobody who cannot know."""

from dataclasses import replace

import pytest

from experiments.simulation.accounts import Run, run
from experiments.simulation.paper import STAND_INS, TABLE_1, WAYS, Nodes, serving
from experiments.simulation.record_proposals import _proposals
from experiments.simulation.settings import Settings
from experiments.simulation.texts import proposals
from experiments.simulation.texts.proposals import ModelPath, Proposal, Text
from experiments.simulation.texts.recorded import RecordedText, RecordedTexts, replayed
from experiments.simulation.texts.target_texts import TargetText
from experiments.simulation.texts.text import draw, feed
from goodspeed.errors import ConfigError
from goodspeed.ngram.index import NgramIndex
from goodspeed.wire.messages import Sampling

PROPOSALS = (Proposal(), Proposal(bytes([0, 3, 81]), 1), Proposal(bytes([5]), 1), Proposal(bytes([16]), 0))
TEXT = Text(
    domain="code",
    temperature=0.0,
    seed=1,
    prompt_len=10,
    own=proposals.joined(PROPOSALS),
    history=proposals.joined(PROPOSALS[::-1]),
    models={"small": ModelPath("0110", proposals.written([16, 0, 0, 8]))},
)


def test_proposals_are_read_as_they_were_written(tmp_path) -> None:
    assert proposals.parted(TEXT.own) == PROPOSALS
    path = tmp_path / "texts.jsonl"
    proposals.save([TEXT], path)
    assert proposals.load(path) == (TEXT,)


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"kind": "agreements", "version": 1}\n')
    with pytest.raises(ConfigError, match="damaged in line 1"):
        proposals.load(path)


def test_what_is_shipped_covers_every_position() -> None:
    texts = proposals.load()
    assert {text.temperature for text in texts} == {0.0, 1.0}
    assert len({text.domain for text in texts}) == 8
    assert proposals.SHIPPED.stat().st_size < 1_000_000
    for text in texts:
        lengths = {len(proposals.parted(text.own)), len(proposals.parted(text.history))}
        lengths |= {len(text.models[name].agreed) for name in STAND_INS}
        lengths |= {len(text.models[name].probabilities) for name in STAND_INS}
        assert len(lengths) == 1


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
    """Four tokens after a prompt of ten; a longer text goes through them again."""
    text = RecordedText(TEXT, "small")
    assert [text.rate(position, 0, True) for position in range(10, 15)] == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert [text.probabilities(position, 0) for position in range(10, 14)] == pytest.approx([0.5, 1.0, 1.0, 2**-0.5])
    assert text.proposal("own", 11) == text.proposal("history", 16) == PROPOSALS[1]


ROW = replace(TABLE_1[0], max_tokens=40)


def played(way: str, temperature: float = 0.0) -> tuple[Run, Settings]:
    settings = serving(ROW, Nodes(), way, temperature=temperature, num_texts=3, seed=1)
    return run(replace(settings, validate=True), 1), settings


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_every_way_writes_all_texts(way: str) -> None:
    found, _ = played(way)
    assert found.num_tokens == ROW.num_clients * 3 * 40
    drafted = found.accounts.num_drafted
    assert (drafted == 0) == (way == "plain")


def test_what_is_accepted_without_a_model_is_what_was_recorded() -> None:
    """Drafts of a text alone cannot bring more tokens a round than all that was right in them."""
    own, _ = played("n-gram, own text")
    history, _ = played("n-gram")
    assert 0 < own.accounts.num_accepted < history.accounts.num_accepted
    assert history.accounts.num_rounds < own.accounts.num_rounds < 3 * 40


def test_clients_have_texts_of_domains_of_their_own() -> None:
    texts = RecordedTexts([STAND_INS[0]] * 8, 1.0, seed=3)
    assert sorted(texts.text(client, 0).domain for client in range(8)) == sorted(texts.names)
    assert {texts.text(0, number).domain for number in range(8)} == {texts.names[0]}
    again, other = (RecordedTexts([STAND_INS[0]] * 8, 1.0, seed=seed) for seed in (3, 4))
    assert texts.text(0, 0) == again.text(0, 0)  # policies are compared on the same texts
    assert texts.names != other.names
    with pytest.raises(ConfigError, match=r"temperature 0\.3"):
        RecordedTexts([STAND_INS[0]], 0.3, seed=1)


def test_what_an_index_says_is_recorded_with_how_far_it_was_right() -> None:
    """After 1 2 3 4 1 2 it says 3 4, as before, and the text goes on with 3 9."""
    text = TargetText("code", Sampling(temperature=0.0), (1, 2, 3, 4, 1), (2, 3, 9))
    found = list(_proposals(text, []))
    assert len(found) == 3
    assert found[0] == Proposal()  # a single token is no match
    assert (len(found[1].codes), found[1].num_right) == (2, 1)
    other = NgramIndex()
    other.add((4, 1, 2, 3, 9))
    assert next(_proposals(text, [other])).num_right == 3
