"""`python -m training.train` makes the embedded models, in stages that resume where they stopped.

  corpus   the tokenizer (kept if there is one) and the stream of training tokens
  target   trains tiny-target on the stream
  drafts   trains both drafts to match the target's distribution on the same stream (one teacher pass for both)

The state of the runs lies outside the project (`--state`); without it, training goes on from the `--weights`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from goodspeed.embedded import models
from training import corpus, family, tokenizer
from training.run import Run, train

DRAFTS = ("tiny-draft-s", "tiny-draft-m")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="corpus, target, drafts; all by default")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for each of target and drafts (default 30)")
    parser.add_argument("--state", type=Path, default=Path.home() / ".cache/goodspeed/tiny", help="folder of the state")
    parser.add_argument("--weights", type=Path, default=models.WEIGHTS, help="folder of the checkpoints")
    parser.add_argument("--num-tokens", type=int, default=corpus.NUM_TOKENS, help="length of the training stream")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args(argv)
    unknown = set(args.stages) - {"corpus", "target", "drafts"}
    if unknown:
        parser.error(f"unknown stage: {', '.join(sorted(unknown))}; there are corpus, target, drafts")
    if args.num_tokens < 10 * corpus.BLOCK:
        parser.error(f"--num-tokens must be at least {10 * corpus.BLOCK}")
    args.stages = args.stages or ["corpus", "target", "drafts"]
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


def resume(name: str, args: argparse.Namespace) -> Run:
    """Continues from the saved state, else from the weights, else begins with fresh weights."""
    weights = args.weights / name
    has_weights = (weights / "model.safetensors").exists()
    run = Run(family.load(name, weights) if has_weights else family.create(name), args.state / name)
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
    target = family.load("tiny-target", args.weights / "tiny-target").to(device()).eval().requires_grad_(False)
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


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    stream = args.state / "tokens.npy"
    if "corpus" in args.stages or not stream.exists():
        make_corpus(args)
    tokens = np.load(stream, mmap_mode="r", allow_pickle=False)
    if "target" in args.stages:
        train_target(args, tokens)
    if "drafts" in args.stages:
        train_drafts(args, tokens)


if __name__ == "__main__":
    main()
