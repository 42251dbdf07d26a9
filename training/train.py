"""`python -m training.train` makes the embedded models, in stages that resume where they stopped.

  corpus   the tokenizer (kept if there is one) and the stream of training tokens
  target   trains tiny-target on the stream
  drafts   trains both drafts to match the target's distribution on the same stream (one teacher pass for both)
  texts    has the target write texts, at temperatures 0 and 1
  parallel makes tiny-draft-p from tiny-draft-m on these texts: it drafts several tokens in one pass (parallel.py)

The state of the runs lies outside the project (`--state`); without it, training goes on from the `--weights`.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.embedded import models
from training import corpus, family, parallel, tokenizer, written
from training.run import Run, train

DRAFTS = ("tiny-draft-s", "tiny-draft-m")
PARALLEL, ORIGIN = "tiny-draft-p", "tiny-draft-m"
STAGES = ("corpus", "target", "drafts", "texts", "parallel")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)}; all by default")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for each stage after corpus (default 30)")
    parser.add_argument("--state", type=Path, default=Path.home() / ".cache/goodspeed/tiny", help="folder of the state")
    parser.add_argument("--weights", type=Path, default=models.WEIGHTS, help="folder of the checkpoints")
    parser.add_argument("--num-tokens", type=int, default=corpus.NUM_TOKENS, help="length of the training stream")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args(argv)
    unknown = set(args.stages) - set(STAGES)
    if unknown:
        parser.error(f"unknown stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    if args.num_tokens < 10 * corpus.BLOCK:
        parser.error(f"--num-tokens must be at least {10 * corpus.BLOCK}")
    args.stages = args.stages or STAGES
    return args


def make_corpus(args: argparse.Namespace) -> None:
    known = args.weights / "tiny-target" / "tokenizer.json"
    tok = tokenizer.load(known.parent) if known.exists() else corpus.train_tokenizer()
    for name in models.NAMES:
        tokenizer.save(tok, args.weights / name)
    args.state.mkdir(parents=True, exist_ok=True)
    tokens = corpus.build(tok, args.num_tokens)
    np.save(args.state / "tokens.npy", tokens, allow_pickle=False)
    print(f"corpus: {len(tokens)} tokens", file=sys.stderr)


def resume(name: str, args: argparse.Namespace, fresh: Callable[[str], LlamaForCausalLM] = family.create) -> Run:
    """Continues from the saved state, else from the weights, else begins with a fresh model."""
    weights = args.weights / name
    has_weights = (weights / "model.safetensors").exists()
    run = Run(family.load(name, weights) if has_weights else fresh(name), args.state / name)
    origin = "its state" if run.restore() else "its weights" if has_weights else "fresh weights"
    print(f"{name}: from {origin}, step {run.step}", file=sys.stderr)
    return run


def batch(tokens: corpus.Tokens, step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    inputs, labels = corpus.block(tokens, step)
    return tuple(torch.from_numpy(a.astype(np.int64)).to(device) for a in (inputs, labels))  # type: ignore[return-value]


def logits(model: LlamaForCausalLM, inputs: Tensor) -> Tensor:
    """[rows, length, vocab] in float32, computed in bfloat16."""
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        output: Tensor = model(input_ids=inputs, use_cache=False).logits
    return output.float()


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train_target(args: argparse.Namespace, tokens: corpus.Tokens) -> None:
    run = resume("tiny-target", args)

    def losses(step: int) -> list[Tensor]:
        inputs, labels = batch(tokens, step, run.model.device)
        return [functional.cross_entropy(logits(run.model, inputs).flatten(0, 1), labels.flatten())]

    train([run], losses, 60 * args.minutes, lambda: family.save(run.model, args.weights / "tiny-target"))


def train_drafts(args: argparse.Namespace, tokens: corpus.Tokens) -> None:
    """KL(target || draft) over the whole vocabulary at temperature 1; the target as it is stored."""
    target = the_target(args)
    runs = [resume(name, args) for name in DRAFTS]

    def losses(step: int) -> list[Tensor]:
        inputs, _ = batch(tokens, step, target.device)
        with torch.no_grad():
            wanted = logits(target, inputs).flatten(0, 1).softmax(-1)  # [tokens, vocab]
            entropy = torch.special.entr(wanted).sum(-1).mean()
        given = [logits(run.model, inputs).flatten(0, 1) for run in runs]
        return [functional.cross_entropy(log_probs, wanted) - entropy for log_probs in given]

    def on_save() -> None:
        for name, run in zip(DRAFTS, runs, strict=True):
            family.save(run.model, args.weights / name)

    train(runs, losses, 60 * args.minutes, on_save)


def the_target(args: argparse.Namespace) -> LlamaForCausalLM:
    """The target as it is stored."""
    return family.load("tiny-target", args.weights / "tiny-target").to(device()).eval().requires_grad_(False)


def write_texts(args: argparse.Namespace) -> None:
    tok = tokenizer.load(args.weights / "tiny-target")
    args.state.mkdir(parents=True, exist_ok=True)
    for name, stream in written.write(the_target(args), tok, 60 * args.minutes).items():
        np.save(args.state / f"written-{name}.npy", stream, allow_pickle=False)


def train_parallel(args: argparse.Namespace) -> None:
    """Cross entropy with the target's probabilities, at every position of its texts and at the masks behind them."""
    target = the_target(args)
    tokenizer.save(tokenizer.load(args.weights / "tiny-target"), args.weights / PARALLEL)
    paths = {f"{t:g}": args.state / f"written-{t:g}.npy" for t in written.TEMPERATURES}
    streams = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in paths.items()}
    run = resume(PARALLEL, args, lambda name: family.widened(name, args.weights, ORIGIN))
    rng = torch.Generator().manual_seed(run.step)
    num_parallel = run.model.config.pard_num_tokens

    def losses(step: int) -> list[Tensor]:
        text, temperature = parallel.rows(streams, step)
        text = text.to(target.device)
        with torch.no_grad():
            wanted = parallel.sharpened(logits(target, text).softmax(-1), temperature)
        masks = parallel.Masks.drawn(text.shape[1], num_parallel, rng)
        return [parallel.loss(run.model, text, wanted, masks)]

    train([run], losses, 60 * args.minutes, lambda: family.save(run.model, args.weights / PARALLEL))


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    stream = args.state / "tokens.npy"
    on_stream = {"target", "drafts"} & set(args.stages)
    if "corpus" in args.stages or (on_stream and not stream.exists()):
        make_corpus(args)
    if "target" in args.stages:
        train_target(args, np.load(stream, mmap_mode="r", allow_pickle=False))
    if "drafts" in args.stages:
        train_drafts(args, np.load(stream, mmap_mode="r", allow_pickle=False))
    if "texts" in args.stages:
        write_texts(args)
    if "parallel" in args.stages:
        train_parallel(args)


if __name__ == "__main__":
    main()
