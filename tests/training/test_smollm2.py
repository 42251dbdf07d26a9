"""The training of smollm2's draft model, with a random target of 258 tokens."""

import json
from pathlib import Path
from random import Random
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from goodspeed.engine import engines
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.paged.chunks import Chunk
from tests.engine import gguf_models
from training.smollm2 import __main__ as stages
from training.smollm2 import answers, draft, stored
from training.smollm2.distilling import Step
from training.smollm2.stored import Answer
from training.smollm2.target import Batch, Target, likeliest

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [40, 41, 42], [90, 3, 90, 3, 90]]
VOCAB, END = 258, 256


@pytest.fixture(scope="module")
def file() -> Path:
    return gguf_models.made("F32", "llama")


@pytest.fixture(scope="module")
def target(file: Path) -> Target:
    return Target(file)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}
    monkeypatch.setattr(draft, "SHAPE", draft.SHAPE | sizes)


def job(prompt: list[int], temperature: float) -> answers.Job:
    return answers.Job("chat", "made", prompt, temperature)


def answer(tokens: list[int], *, prompt: int = 4, temperature: float = 1.0, domain: str = "chat") -> Answer:
    """An answer whose second likeliest token follows the first one's id."""
    likely = np.array([[token, *range(100, 100 + stored.NUM_LIKELY - 1)] for token in tokens], np.uint16)
    log_probs = np.log(np.array([[0.5, 0.25, *[0.01] * (stored.NUM_LIKELY - 2)]] * len(tokens))).astype(np.float16)
    return Answer(domain, "made", temperature, np.arange(prompt), np.array(tokens), likely, log_probs)


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_prompts_are_held_out_by_their_ids(tmp_path: Path) -> None:
    rows = [{"id": f"id-{number}", "turns": [f"question {number}", "more"]} for number in range(64)]
    (tmp_path / "qa.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trained, held_out = (answers.real(tmp_path, held_out=which) for which in (False, True))
    assert len(trained) + len(held_out) == 64
    assert 6 < len(held_out) < 26
    assert ("qa", "id-0", "question 0") in trained + held_out


# -- answers -----------------------------------------------------------------------------------------------------------


def test_texts_of_different_lengths_are_computed_as_alone(file: Path, target: Target) -> None:
    batch = Batch(target, PROMPTS)
    found = [batch.prefill()]
    batch.keep(torch.tensor([2, 0, 0]))
    found += [batch.step(torch.tensor([1, 2, 3])), batch.step(torch.tensor([4, 5, 6]))]
    texts = [*PROMPTS, [*PROMPTS[2], 1], [*PROMPTS[0], 2], [*PROMPTS[0], 3]]
    texts += [[*text, token] for text, token in zip(texts[3:], (4, 5, 6), strict=True)]
    for row, text in zip(torch.cat(found), texts, strict=True):
        wanted = gguf_models.expected(file, "llama", text)[-1]
        assert (row - wanted).square().mean().sqrt() < 0.06 * wanted.std()  # bfloat16


@pytest.mark.parametrize("vocab", [128 * 20, 128 * 3, 77])
def test_the_likeliest(vocab: int) -> None:
    logits = torch.randn(5, vocab)
    values, ids = likeliest(logits, 16)
    assert torch.equal(values, logits.topk(16).values)
    assert torch.equal(logits.gather(1, ids), values)


def test_answers_end_and_have_the_likeliest_tokens_of_each_place(target: Target) -> None:
    greedy = answers.write(target, [job(prompt, 0.0) for prompt in PROMPTS], frozenset(), Random(0), longest=9)
    for found in greedy:
        assert found.likely.shape == (9, stored.NUM_LIKELY)
        assert found.tokens.tolist() == found.likely[:, 0].tolist()
        assert (np.diff(found.log_probs.astype(float)) <= 0).all()
    end = int(greedy[0].tokens[4])
    ended = answers.write(target, [job(prompt, 0.0) for prompt in PROMPTS], frozenset({end}), Random(0), longest=9)
    for found, whole in zip(ended, greedy, strict=True):
        stops = np.flatnonzero(whole.tokens == end)
        assert found.tokens.tolist() == whole.tokens[: stops[0] + 1 if len(stops) else 9].tolist()


def test_answers_are_drawn_from_the_target(target: Target) -> None:
    """With so many draws the shares of first tokens are the target's probabilities, the rare ones' included."""
    prompt, num = PROMPTS[0], 4000
    logits = Batch(target, [prompt]).prefill()
    wanted = (logits[0] / 0.7).softmax(-1)
    drawn = answers.write(target, [job(prompt, 0.7)] * num, frozenset(), Random(3), longest=1)
    found = torch.bincount(torch.tensor([int(each.tokens[0]) for each in drawn]), minlength=VOCAB) / num
    assert (found - wanted).abs().max() < 0.04
    rare = torch.ones(VOCAB, dtype=torch.bool).index_fill(0, logits[0].topk(stored.NUM_LIKELY).indices, False)
    assert found[rare].sum() == pytest.approx(float(wanted[rare].sum()), abs=0.03)


# -- training ----------------------------------------------------------------------------------------------------------


def test_the_tokens_that_are_said_most_are_kept() -> None:
    embedding = torch.eye(VOCAB)
    embedding[200] = embedding[7] + 0.1 * embedding[9]
    kept = draft.choose_kept([answer([7, 7, 7, 9])], embedding, [END], 20)
    assert {7, 9, END, 100, *range(4)} <= set(kept.tokens.tolist())
    assert len(kept.tokens) == 20
    assert kept.tokens[kept.nearest[200]] == 7
    assert (kept.nearest[kept.tokens] == np.arange(20)).all()


def test_a_step_has_the_row_before_each_token() -> None:
    kept = KeptTokens(np.array([0, 1, 2, 7, 100]), np.array([0, 1, 2, 2, *[3] * 254]))
    kept.nearest[100] = 4
    step = Step.of([answer([7, 50], prompt=3), answer([1], prompt=4, temperature=0.0)], kept, 80)
    assert step.inputs.tolist() == [[0, 1, 2, 3, 3], [0, 1, 2, 2, 1]]
    assert [place.tolist() for place in step.places] == [[0, 0, 1], [2, 3, 3]]
    assert step.labels[:, :3].tolist() == [[3, 4, -1], [-1, 4, -1], [1, 4, -1]]
    wanted = np.array([[2 / 3, 1 / 3, 0], [0, 1, 0], [5 / 6, 1 / 6, 0]])
    assert step.wanted[:, :3].numpy() == pytest.approx(wanted, abs=1e-3)


def test_stages(tmp_path: Path, file: Path, target: Target, small: None) -> None:
    """A model is trained on answers, goes on, and is written; the engine computes what it learned."""
    for number, temperature in enumerate((0.0, 1.0)):
        jobs = [job(prompt, temperature) for prompt in PROMPTS]
        written = answers.write(target, jobs, frozenset(), Random(number), longest=40)
        stored.save(tmp_path / "answers" / f"train-{number}.npz", written)
        stored.save(tmp_path / "answers" / f"held-out-{number}.npz", written)
    output = tmp_path / "draft.gguf"

    def run(stage: str, *options: str) -> None:
        args = stages.parse([stage, f"--state={tmp_path}", f"--target={file}", "--kept=200", *options])
        stages.STAGES[stage](args)

    with pytest.raises(SystemExit, match=r"there are no trained weights in .*; train some first"):
        run("export", f"--output={output}")
    run("train", "--minutes=0.02")
    first, kept = stages.resumed(stages.parse(["train", f"--state={tmp_path}", f"--target={file}", "--kept=200"]))
    run("train", "--minutes=0.02")
    args = stages.parse(["export", f"--state={tmp_path}", f"--target={file}"])
    again, _ = stages.resumed(args)
    assert again.step > first.step > 1
    run("export", f"--output={output}", "--float32")
    checkpoint = engines.load(str(output), dtype="float32")
    text = PROMPTS[0] + [int(kept.tokens[-1])] * 4
    found = engines.start(checkpoint, num_pages=1).forward([Chunk("a", text, len(text))])
    wanted = again.model.eval()(torch.from_numpy(kept.nearest[text])[None]).logits[0].detach()
    assert found.shape == (len(text), VOCAB)
    assert (found[:, kept.tokens] - wanted).abs().max() < 1e-3 * wanted.abs().max()


def test_nothing_to_measure_is_told(tmp_path: Path, file: Path) -> None:
    args = stages.parse(["measure", f"--state={tmp_path}", f"--draft={file}"])
    with pytest.raises(SystemExit, match=r"there are no held-out answers in .*; write some first"):
        stages.measure(args)


def test_held_out_answers_are_written_once(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are there stay; those of other prompts or of another target go."""
    folder, written = tmp_path / "answers", Mock(return_value=[])
    monkeypatch.setattr(answers, "write", written)
    monkeypatch.setattr(answers, "real", Mock(return_value=[("chat", str(i), "Hi") for i in range(10)]))
    monkeypatch.setattr(stages, "encode", Mock(return_value=[1, 2, 3]))
    monkeypatch.setattr(stored, "save", lambda path, _: path.touch())
    folder.mkdir()
    args = stages.parse(["held-out", f"--state={tmp_path}", f"--target={file}", "--prompts=any"])
    stages.write_held_out(args)
    assert written.call_count == 2
    first, second = sorted(folder.iterdir())
    (folder / "held-out-0032.npz").touch()
    second.unlink()
    stages.write_held_out(args)
    assert written.call_count == 3
    assert sorted(folder.iterdir()) == [first, second]
    args.target = "another"
    monkeypatch.setattr(stages, "load_tokenizer", Mock(return_value=Mock(eos_ids=(1,))))
    monkeypatch.setattr(stages, "Target", Mock())
    monkeypatch.setattr(stages, "models", Mock())
    stages.write_held_out(args)
    assert not {first, second} & {*folder.iterdir()}, "they are another target's"


def test_measuring_by_domain(tmp_path: Path, file: Path, target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    """The target agrees with itself, but for its rare tokens and its rounding; another model agrees less."""
    for number, temperature in enumerate((0.0, 1.0)):
        jobs = [job(prompt, temperature) for prompt in PROMPTS * 4]
        found = answers.write(target, jobs, frozenset(), Random(1), longest=20)
        stored.save(tmp_path / "answers" / f"held-out-{number}.npz", found)
        covered = np.mean([np.exp(one.log_probs.astype(float)).sum(-1).mean() for one in found])
    for name in (file, gguf_models.made("Q4_0", "llama")):
        stages.measure(stages.parse(["measure", f"--state={tmp_path}", f"--draft={name}"]))
    rows = [json.loads(line)["match, ratio"] for line in capsys.readouterr().out.splitlines()]
    assert all(row["chat"] == row["all"] for row in rows)
    greedy, drawn, greedy_other, drawn_other = (row["chat"] for row in rows)
    assert greedy[0] > 0.85
    assert drawn[0] > 0.5
    assert drawn[1] == pytest.approx(covered, abs=0.1)
    assert greedy_other[0] < greedy[0] - 0.1
    assert drawn_other[0] < drawn[0] - 0.1
