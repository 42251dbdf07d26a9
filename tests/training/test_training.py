"""Runs resume exactly, from their state or from weights alone; a microscopic model stands for the family's."""

from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from goodspeed.embedded import models
from training import corpus, family, tokenizer, written
from training import run as run_module
from training import train as train_module
from training.domains import SOURCES, sources
from training.optimizer import Optimizer, Schedule
from training.run import Run, train

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 32}
TOKENS = torch.arange(40_000) % 7 + torch.arange(40_000) % 3


def microscopic(folder: Path) -> Run:
    torch.manual_seed(3)
    return Run(LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)), folder)


def advance(run: Run, num_steps: int) -> Run:
    for _ in range(num_steps):
        row = TOKENS[run.step * 32 : run.step * 32 + 33]
        logits = run.model(input_ids=row[None, :-1], use_cache=False).logits
        run.update(functional.cross_entropy(logits[0], row[1:]))
    return run


def weights(run: Run) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def test_an_interrupted_run_goes_on_as_the_uninterrupted_one_to_its_end_and_beyond(tmp_path: Path) -> None:
    whole = advance(microscopic(tmp_path / "whole"), 12)
    advance(microscopic(tmp_path / "cut"), 7).save()
    resumed = microscopic(tmp_path / "cut")
    assert resumed.restore()
    assert resumed.step == 7
    advance(resumed, 5)
    assert all(torch.equal(a, weights(resumed)[name]) for name, a in weights(whole).items())
    resumed.decay(6)
    advance(resumed, 3).save()
    decaying = microscopic(tmp_path / "cut")
    decaying.restore()
    assert decaying.schedule == Schedule(decay_from=12, stop=18)
    assert not decaying.finished
    advance(decaying, 3).save()
    assert decaying.finished
    new_phase = microscopic(tmp_path / "cut")
    new_phase.restore()
    assert (new_phase.step, new_phase.schedule) == (18, Schedule(begin=18))


def test_schedule_rises_stays_and_falls() -> None:
    schedule = Schedule(warmup=4, decay_from=10, stop=14)
    assert [schedule.scale(step) for step in (0, 3, 9, 10, 12, 13)] == [0.25, 1.0, 1.0, 1.0, 0.5, 0.25]


def test_time_budget_leaves_time_for_the_decay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock gives every look one second."""
    clock = iter(range(10_000))
    look = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr(run_module, "time", look)  # not the module itself, at whose clock other threads look, too
    run, saves = microscopic(tmp_path), []

    def losses(step: int) -> list[Tensor]:
        row = TOKENS[step * 32 : step * 32 + 33]
        return [functional.cross_entropy(run.model(input_ids=row[None, :-1], use_cache=False).logits[0], row[1:])]

    train([run], losses, 40.0, lambda: saves.append(run.step))
    assert (run.schedule.decay_from, run.schedule.stop) == (30, 40)
    assert saves[-1] == run.step == 40
    assert (tmp_path / "state.safetensors").exists()


def test_checkpoint_keeps_what_16_bits_can(tmp_path: Path) -> None:
    model = family.create("tiny-draft-s")
    family.save(model, tmp_path)
    for file in ("generation_config.json", "chat_generation_config.json"):
        assert (tmp_path / file).read_text() == (models.path("tiny-draft-s") / file).read_text()
    loaded = family.load("tiny-draft-s", tmp_path).state_dict()
    assert all(torch.equal(p.bfloat16().float(), loaded[name]) for name, p in model.state_dict().items())
    with pytest.raises(RuntimeError):
        family.load("tiny-draft-m", tmp_path)


def test_blocks_follow_each_other() -> None:
    tokens = torch.arange(20_000).numpy().astype("uint16")
    inputs, labels = corpus.block(tokens, 3)
    assert inputs.shape == (4, 512)
    assert inputs[0, 0] == 3 * corpus.BLOCK
    assert (labels.ravel() == inputs.ravel() + 1).all()
    assert corpus.block(tokens, 15)[0].shape == (1, 2048)
    assert corpus.block(tokens, 10**6)[0].size == corpus.BLOCK


def test_rates_grow_with_the_step() -> None:
    assert Optimizer(family.create("tiny-draft-s"), 16).rates == pytest.approx((0.007 * 16**0.3, 0.0012 * 16**0.3))


def test_written_texts_end_where_the_target_ended_them() -> None:
    assert written.ended([5, 0, 7, 8, 9], 2) == [5, 0, 7, 8, 9]
    assert written.ended([5, 0, 7, 0, 9], 2) == [5, 0, 7, 0]


def test_rows_of_written_texts_are_of_each_temperature_in_turn(tmp_path: Path) -> None:
    for number, name in enumerate(("0", "1")):
        numpy.save(written.path(tmp_path, name), numpy.arange(5000, dtype=numpy.uint16) + 10_000 * number)
    rows = written.Rows(tmp_path, 2048)
    assert [rows.of(step)[1] for step in range(3)] == [0.0, 1.0, 0.0]
    text = rows.of(3)[0]
    assert text.shape == (8, written.ROW)
    assert text.flatten().tolist() == list(range(11_536, 11_536 + 8 * written.ROW))
    with pytest.raises(SystemExit, match="shorter than a step; run the stage texts for longer"):
        written.Rows(tmp_path, 16_384)
    with pytest.raises(SystemExit, match=r"written-0\.npy; run the stage texts first"):
        written.Rows(tmp_path / "nowhere", 2048)


def test_half_of_a_greedy_texts_label_is_the_most_likely_token(tmp_path: Path) -> None:
    model, text = microscopic(tmp_path).model, torch.tensor([[5, 7, 9]])
    drawn, greedy = (train_module.labels(model, text, temperature) for temperature in (1.0, 0.0))
    best = functional.one_hot(drawn.argmax(-1), drawn.shape[-1])
    torch.testing.assert_close(greedy, (drawn + best) / 2)
    torch.testing.assert_close(drawn.sum(-1), torch.ones(1, 3))


@pytest.mark.thorough
def test_the_commands_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages on a very short stream with a microscopic family: weights and state appear where asked."""
    for name in models.NAMES:
        monkeypatch.setitem(family.SHAPES, name, {k: v for k, v in SMALL.items() if k != "vocab_size"})
    monkeypatch.setattr(written, "TOGETHER", 8)
    monkeypatch.setattr(corpus, "train_tokenizer", lambda: tokenizer.load(models.path("tiny-target")))
    monkeypatch.setattr(sources, "library", lambda: {key: [("ast", "def f():\n    pass\n" * 40)] for key in SOURCES})
    state, out = tmp_path / "state", tmp_path / "weights"
    options = ["--minutes", "0.005", "--state", str(state), "--weights", str(out), "--num-tokens", "21000"]
    train_module.main(options)
    assert all((out / name / "model.safetensors").exists() for name in models.NAMES)
    assert all((state / name / "state.safetensors").exists() for name in models.NAMES)
    train_module.main(["drafts", *options])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["teacher"], "unknown stage: teacher; there are corpus, target, texts, drafts, parallel"),
        (["corpus", "--num-tokens", "100"], "--num-tokens must be at least 20480"),
    ],
)
def test_wrong_options_are_refused(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_module.main(argv)
    assert message in capsys.readouterr().err
