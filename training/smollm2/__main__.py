"""`python -m training.smollm2` makes smollm2-draft in stages that go on where they stopped.

  answers   has smollm2 answer prompts, for so many minutes; several processes may, each with its own --seed
  held-out  has it answer the prompts that are held out, at temperatures 0 and 1, for `measure`
  train     trains the draft model on the answers that there are, for so many minutes
  export    writes the model's file
  measure   prints by domain how often it agrees with the target

The state lies outside the project (`--state`).
"""

import argparse
import json
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import torch

from goodspeed.embedded import models
from goodspeed.engine import engines
from goodspeed.engine.gguf.file import dequantised, read
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.model_files.finding import load_tokenizer
from goodspeed.engine.tokenizing.text import encode
from goodspeed.errors import GoodSpeedError
from training.chats import MAX_PROMPT
from training.exporting import write_kept
from training.run import Run, train
from training.smollm2 import answers, draft, measuring, stored
from training.smollm2.distilling import loss, steps
from training.smollm2.target import Target

TARGET, DRAFT = "smollm2", "smollm2-draft"
TEMPERATURES = (0.0, 1.0)


def parse(argv: list[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m training.smollm2", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for answers or train (default 30)")
    parser.add_argument("--prompts", type=Path, help="folder of DOMAIN.jsonl with real prompts: id, turns")
    state = Path.home() / ".cache/goodspeed/smollm2-draft"
    parser.add_argument("--state", type=Path, default=state, help="folder of the answers and of the state")
    parser.add_argument("--target", default=TARGET, help="the target, a GGUF file of Llama's architecture")
    parser.add_argument("--draft", default=DRAFT, help="what `measure` measures (default: the shipped one)")
    parser.add_argument("--output", type=Path, default=models.SHIPPED[DRAFT], help="the file that `export` writes")
    parser.add_argument("--float32", action="store_true", help="export unquantised weights, and compute with them")
    parser.add_argument("--kept", type=int, default=draft.NUM_KEPT, help="tokens that a new model keeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(argv)


def write_answers(args: argparse.Namespace) -> None:
    known, target = load_tokenizer(args.target), Target(models.gguf_file(args.target))
    real = answers.real(args.prompts, held_out=False) if args.prompts else []
    folder, name = args.state / "answers", stored.prefix(held_out=False)
    first = sum(1 for _ in folder.glob(f"{name}{args.seed}-*.npz"))
    jobs = answers.Jobs(known.tokenizer, real, f"{args.seed}-{first}")  # other answers than those that are there
    ends = frozenset(known.eos_ids)
    for number, found in enumerate(answers.write_for(target, known.tokenizer, jobs, ends, 60 * args.minutes), first):
        stored.save(folder / f"{name}{args.seed}-{number:04}.npz", found)


def write_held_out(args: argparse.Namespace) -> None:
    if not args.prompts:
        sys.exit("held-out: there are no prompts; give a folder with --prompts")
    real, known = answers.real(args.prompts, held_out=True), load_tokenizer(args.target)
    target, ends = Target(models.gguf_file(args.target)), frozenset(known.eos_ids)
    jobs = [
        answers.Job(domain, name, encode(known.tokenizer, text, chat=True), temperature)
        for temperature in TEMPERATURES
        for domain, name, text in real
    ]
    jobs = sorted((job for job in jobs if len(job.prompt) <= MAX_PROMPT), key=lambda job: len(job.prompt))
    asked = repr([(args.target, job.prompt, job.temperature) for job in jobs]).encode()
    name = f"{stored.prefix(held_out=True)}{sha256(asked).hexdigest()[:8]}-"
    files = {args.state / "answers" / f"{name}{number:04}.npz": number for number in range(0, len(jobs), 16)}
    for file in set((args.state / "answers").glob(f"{stored.prefix(held_out=True)}*.npz")) - files.keys():
        file.unlink()  # of other prompts, or of another target
    for file, number in files.items():
        if not file.exists():
            stored.save(file, answers.write(target, jobs[number : number + 16], ends, Random(number)))


def train_draft(args: argparse.Namespace) -> None:
    run, kept = resumed(args)
    step = steps(lambda: stored.load(args.state / "answers", held_out=False), kept, run.step)
    train(run, lambda number: loss(run.model, step(number)), 60 * args.minutes)


def export(args: argparse.Namespace) -> None:
    run, kept = resumed(args)
    if not run.step:
        sys.exit(f"there are no trained weights in {args.state}; train some first (the stage train)")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    target = read(models.gguf_file(args.target), args.target)
    name, weights = f"draft model of {args.target}", run.model.state_dict()
    size = write_kept(args.output, name, run.model.config, weights, kept, target, in_float32=args.float32)
    print(f"{args.output}: {size / 1e6:.2f} MB, step {run.step}")


def measure(args: argparse.Namespace) -> None:
    checkpoint = engines.load(args.draft, num_threads=args.threads, dtype="float32" if args.float32 else "auto")
    held_out = stored.load(args.state / "answers", held_out=True)
    if not held_out:
        sys.exit(f"there are no held-out answers in {args.state}; write some first (the stage held-out)")
    for temperature in TEMPERATURES:
        shares = measuring.agreement(checkpoint, held_out, temperature)
        shown = {name: [round(share, 3) for share in pair] for name, pair in sorted(shares.items())}
        print(json.dumps({"temperature": temperature, "match, ratio": shown}), flush=True)


def resumed(args: argparse.Namespace) -> tuple[Run, KeptTokens]:
    """Returns the run in its saved state, or a new one with the tokens that the answers so far say most."""
    file = read(models.gguf_file(args.target), args.target)
    known, choice = load_tokenizer(args.target), args.state / "kept.npz"
    is_new = not choice.exists()
    if is_new:
        found = stored.load(args.state / "answers", held_out=False)
        if not found:
            sys.exit(f"there are no answers in {args.state}; write some first (the stage answers)")
        embedding = torch.from_numpy(dequantised(file.tensors["token_embd.weight"]))
        kept = draft.choose_kept(found, embedding, known.eos_ids, args.kept)
        with choice.open("wb") as opened:
            np.savez(opened, tokens=kept.tokens, nearest=kept.nearest)
    with np.load(choice, allow_pickle=False) as arrays:
        kept = KeptTokens(arrays["tokens"], arrays["nearest"])
    model = draft.create(len(kept.tokens), file.context_len)
    if is_new:
        draft.begin_with(model, embedding[torch.from_numpy(kept.tokens)])
    run = Run(model, args.state / "run")
    run.restore()
    return run, kept


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "answers": write_answers,
    "held-out": write_held_out,
    "train": train_draft,
    "export": export,
    "measure": measure,
}

if __name__ == "__main__":
    arguments = parse(None)
    torch.set_num_threads(arguments.threads)
    try:
        STAGES[arguments.stage](arguments)
    except GoodSpeedError as error:
        sys.exit(str(error))
