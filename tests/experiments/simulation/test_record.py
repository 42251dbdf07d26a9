"""A recording of two small models is what they do live: each draft, what is accepted of it, how probable it was."""

import sys
from random import Random
from typing import Any

import pytest
import torch

from draft_node.core.generation import Generation
from experiments.simulation import record as recorder
from experiments.simulation.accounts import run
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.texts import proposals
from experiments.simulation.texts.drafted import OFF_PATH_EVERY, index_proposals
from experiments.simulation.texts.proposals import MOST, OffPath, Proposal, Text, Title
from experiments.simulation.texts.recorded import RecordedText
from experiments.simulation.texts.target_texts import TargetText, answers, asked
from goodspeed.app.reference import generate
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.embedded import prompts
from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import PromptError
from goodspeed.ngram.index import NgramIndex
from goodspeed.wire.messages import Sampling

TARGET, DRAFT = "tiny-target", "tiny-draft-s"
NUM_TOKENS = 40
NUM_DRAFTED = 4


@pytest.fixture(scope="module")
def target():
    return checkpoints.load(TARGET)


@pytest.fixture(scope="module")
def draft():
    return checkpoints.load(DRAFT)


@pytest.fixture(scope="module")
def wanted(target):
    """Prompts of domains in which the two often disagree."""
    chosen = [one for one in prompts.load()[:32] if one.domain in ("chat", "docs", "story")][:6]
    return asked(target, chosen, [0.0, 1.0])


@pytest.fixture(scope="module")
def texts(target, draft, wanted):
    """As they were written, and as they were recorded."""
    written = list(answers(target, wanted, NUM_TOKENS))
    return written, recorder.record(target, {DRAFT: draft}, wanted, NUM_TOKENS)


def drafted(drafter: Drafter, text: TargetText, num_tokens: int, length: int) -> tuple[int, ...]:
    """The draft node's own draft after so many written tokens."""
    request = Generation(b"0" * 16, text.prompt, text.sampling, 200)
    drafter.add(Propose(request, 1, 1, text.prompt + text.written[:num_tokens], length))
    while not (done := drafter.step()):
        pass
    drafter.forget(request.session_id)
    return done[0].tokens


def test_texts_are_what_the_target_writes_alone(target, texts) -> None:
    target_engine = engines.start(target, num_pages=64)
    for text, known in zip(*texts, strict=True):
        alone = tuple(generate(target, target_engine, text.prompt, text.sampling, NUM_TOKENS, target.eos_ids))
        assert alone == text.written
        assert (known.num_tokens, known.ended) == (len(alone), len(alone) < NUM_TOKENS)


def test_the_simulation_accepts_what_the_engines_accept(draft, texts) -> None:
    """Rounds of drafts of four tokens, in which nothing is unknown: draft by draft."""
    drafter, num_rejected = Drafter(draft, engines.start(draft, num_pages=64), max_width=1), 0
    for text, known in zip(*texts, strict=True):
        live, at = [], 1  # the first token comes without a draft
        while at < len(text.written):
            room = min(NUM_DRAFTED, len(text.written) - at - 1)
            tokens = drafted(drafter, text, at, room) if room else ()
            equal = [one == other for one, other in zip(tokens, text.written[at:], strict=False)]
            live.append(equal.index(False) if False in equal else len(equal))
            num_rejected += False in equal
            at += live[-1] + 1
        assert accepted(known, len(text.written)) == live
    assert num_rejected > 20


def accepted(known: Text, num_tokens: int) -> list[int]:
    """Drafted tokens that each round of a simulated client accepts, after the first."""
    room: Any = {"num_clients": 1, "num_sessions": 1, "num_at_once": 1, "budget": NUM_DRAFTED, "context_len": 400}
    settings = Settings(
        stops=0.0,
        sizes=lambda client, number: (known.prompt_len, num_tokens),
        policy="fixed",
        self_draft=False,
        acceptance=lambda client, number: RecordedText([known], DRAFT, OffPath(0.0, 0.0)),
        **(room | PAPER),  # drafts are as long as they may be, and replayed agreement stands for the ratio rule's
    )
    return [seen.num_tokens - 1 for seen in run(settings, 1).client_verdicts(0)][1:]


def test_every_figure_is_that_of_the_models(target, draft, texts) -> None:
    """At some positions of each text, each computed alone."""
    target_engine, draft_engine = (engines.start(checkpoint, num_pages=64) for checkpoint in (target, draft))
    drafter, random, num_followed = Drafter(draft, draft_engine, max_width=1), Random(1), 0
    for text, known in zip(*texts, strict=True):
        path = known.models[DRAFT]
        wrong = [place for place, rank in enumerate(path.ranks) if rank != "1"][::OFF_PATH_EVERY]
        assert len(path.off_path) == len(wrong)
        for place in {random.randrange(len(text.written)), *wrong[:2]}:
            whole, right = text.prompt + text.written[:place], text.written[place]
            chain = drafted(drafter, text, place, MOST)
            assert (chain[0] == right) == (path.agreed[place] == "1")
            for engine, codes in ((draft_engine, path.q), (target_engine, path.p)):
                logits = engine.forward([Chunk("alone", whole, 1)])[0]
                engine.pool.free("alone")
                own = _probability(logits, chain[0], text.sampling.temperature)
                assert proposals.decode(proposals.read(codes[place]))[0] == pytest.approx(own, rel=0.03, abs=1e-4)
                if engine is draft_engine:
                    confidence = proposals.decode(proposals.read(path.confidence[place]))[0]
                    assert confidence == pytest.approx(_probability(logits, chain[0], 1.0), rel=0.03, abs=1e-4)
                    if text.sampling.temperature == 0:
                        rank = (logits > logits[right]).sum().item() + 1
                        assert path.ranks[place] == str(rank if rank <= MOST else 0)
            if place in wrong:
                num_followed += 1
                again = [
                    next(generate(target, target_engine, whole + chain[:depth], text.sampling, 1)) == chain[depth]
                    for depth in range(1, MOST)
                ]
                assert path.agreed_again()[wrong.index(place)] == "".join(str(int(one)) for one in again)
    assert num_followed > 5


def _probability(logits: torch.Tensor, token: int, temperature: float) -> float:
    if temperature == 0:
        return float(logits.argmax() == token)
    return float(logits.softmax(0)[token])


def test_what_an_index_says_is_recorded_with_how_far_it_was_right() -> None:
    """After 1 2 3 4 1 2 it says 3 4, as before, and the text goes on with 3 9."""
    text = TargetText("code", Sampling(temperature=0.0), (1, 2, 3, 4, 1), (2, 3, 9))
    found = list(index_proposals(text, []))
    assert len(found) == 3
    assert found[0] == Proposal()  # a single token is no match
    assert (len(found[1].codes), found[1].num_right) == (2, 1)
    other = NgramIndex()
    other.add((4, 1, 2, 3, 9))
    assert next(index_proposals(text, [other])).num_right == 3


def test_the_command_records_the_answers_to_prompts_of_ones_own(tmp_path, monkeypatch, capsys) -> None:
    folder, out = tmp_path / "asked", tmp_path / "own.jsonl.gz"
    folder.mkdir()
    for name in ("cooking", "gardens"):
        (folder / f"{name}.jsonl").write_text(f'{{"id": "{name}-1", "turns": ["Tell me of {name}.", "More."]}}\n\n')
    words = ["--model", TARGET, "--draft", "none", "--draft", DRAFT, f"--prompts={folder}", "--max-tokens=8"]
    monkeypatch.setattr(sys, "argv", ["record", *words, "--temperature=0.7", f"--out={out}"])
    assert recorder.main() == 0
    told = capsys.readouterr().out
    assert "cooking" in told
    assert DRAFT in told
    found = proposals.load(out)
    assert found.title == Title(proposals.VERSION, TARGET, (DRAFT,), 8, "asked")
    told_of = [(text.id, text.domain, text.temperature) for text in found.texts]
    assert told_of == [("cooking-1", "cooking", 0.7), ("gardens-1", "gardens", 0.7)]
    assert found.texts[0].prompt_len > 8  # by the chat template


def test_a_prompt_that_does_not_fit_is_named(target, tmp_path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text('{"id": "number 1", "turns": ["one two three four five six seven eight nine ten"]}')
    with pytest.raises(PromptError, match=r"prompt number 1 of long has .* too many for the models' context"):
        recorder.questions(target, file, [0.0], 8, 20)
