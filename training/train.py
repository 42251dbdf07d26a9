"""`python -m training.train` makes the embedded models, in stages that resume where they stopped.

  corpus   the tokenizer (kept if there is one) and the stream of training tokens
  target   trains tiny-target on the stream
  texts    has the target write texts, at temperatures 0 and 1
  drafts   trains both drafts to match the target's distribution on the stream and on these texts in turn (one teacher
           pass for both)
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
STAGES = ("corpus", "target", "texts", "drafts", "parallel")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)}; all by default")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for each stage after corpus (default 30)")
    parser.add_argument("--state", type=Path, default=Path.home() / ".cache/goodspeed/tiny", help="folder of the state")
    parser.add_argument("--weights", type=Path, default=models.WEIGHTS, help="folder of the checkpoints")
    parser.add_argument("--num-tokens", type=int, default=corpus.NUM_TOKENS, help="length of the training stream")
    block = corpus.BLOCK if device().type == "cpu" else corpus.BLOCK_OF_A_GPU
    parser.add_argument("--block", type=int, default=block, help=f"tokens of a step (here by default {block})")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args(argv)
    unknown = set(args.stages) - set(STAGES)
    if unknown:
        parser.error(f"unknown stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    if args.block < corpus.BLOCK or args.block % corpus.BLOCK:
        parser.error(f"--block must be a multiple of {corpus.BLOCK}")
    if args.num_tokens < 10 * args.block:
        parser.error(f"--num-tokens must be at least {10 * args.block}")
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


def stream(args: argparse.Namespace) -> corpus.Tokens:
    """The training stream, made if there is none."""
    path = args.state / "tokens.npy"
    if not path.exists():
        make_corpus(args)
    tokens: corpus.Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    return tokens


def resume(name: str, args: argparse.Namespace, fresh: Callable[[str], LlamaForCausalLM] = family.create) -> Run:
    """Continues from the saved state, else from the weights, else begins with a fresh model."""
    weights = args.weights / name
    has_weights = (weights / "model.safetensors").exists()
    model = (family.load(name, weights) if has_weights else fresh(name)).to(device())
    run = Run(model, args.state / name, args.block / corpus.BLOCK)
    origin = "its state" if run.restore() else "its weights" if has_weights else "fresh weights"
    print(f"{name}: from {origin}, step {run.step}", file=sys.stderr)
    return run


def batch(tokens: corpus.Tokens, step: int, size: int) -> tuple[Tensor, Tensor]:
    inputs, labels = corpus.block(tokens, step, size)
    return tuple(torch.from_numpy(a.astype(np.int64)).to(device()) for a in (inputs, labels))  # type: ignore[return-value]


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
        inputs, labels = batch(tokens, step, args.block)
        return [functional.cross_entropy(logits(run.model, inputs).flatten(0, 1), labels.flatten())]

    train([run], losses, 60 * args.minutes, lambda: family.save(run.model, args.weights / "tiny-target"))


def train_drafts(args: argparse.Namespace, tokens: corpus.Tokens) -> None:
    """KL(target || draft) over the whole vocabulary; the target as it is stored."""
    target, written_rows = the_target(args), written.Rows(args.state, args.block)
    runs = [resume(name, args) for name in DRAFTS]

    def losses(step: int) -> list[Tensor]:
        text, temperature = written_rows.of(step // 2) if step % 2 else (batch(tokens, step // 2, args.block)[0], 1.0)
        wanted = labels(target, text, temperature).flatten(0, 1)
        entropy = torch.special.entr(wanted).sum(-1).mean()
        given = [logits(run.model, text.to(target.device)).flatten(0, 1) for run in runs]
        return [functional.cross_entropy(log_probs, wanted) - entropy for log_probs in given]

    def on_save() -> None:
        for name, run in zip(DRAFTS, runs, strict=True):
            family.save(run.model, args.weights / name)

    train(runs, losses, 60 * args.minutes, on_save)


@torch.no_grad()
def labels(target: LlamaForCausalLM, text: Tensor, temperature: float) -> Tensor:
    """Returns the probabilities that a draft model is to predict after each token of a text [rows, length].

    The result is [rows, length, vocab]. In a text that was written greedily, half of each label goes to the target's
    most likely token, since only that token is accepted there.
    """
    probs = logits(target, text.to(target.device)).softmax(-1)
    return probs if temperature else 0.5 * (probs + functional.one_hot(probs.argmax(-1), probs.shape[-1]))


def the_target(args: argparse.Namespace) -> LlamaForCausalLM:
    """The target as it is stored."""
    return family.load("tiny-target", args.weights / "tiny-target").to(device()).eval().requires_grad_(False)


def write_texts(args: argparse.Namespace, tokens: corpus.Tokens) -> None:
    args.state.mkdir(parents=True, exist_ok=True)
    together = written.TOGETHER * args.block // corpus.BLOCK
    for name, stream in written.write(the_target(args), tokens, 60 * args.minutes, together).items():
        np.save(written.path(args.state, name), stream, allow_pickle=False)


def train_parallel(args: argparse.Namespace) -> None:
    """Cross entropy with the target's probabilities, at every position of its texts and at the masks behind them."""
    target, written_rows = the_target(args), written.Rows(args.state, args.block)
    tokenizer.save(tokenizer.load(args.weights / "tiny-target"), args.weights / PARALLEL)
    run = resume(PARALLEL, args, lambda name: family.widened(name, args.weights, ORIGIN))
    rng = torch.Generator().manual_seed(run.step)
    num_parallel = run.model.config.pard_num_tokens

    def losses(step: int) -> list[Tensor]:
        text, temperature = written_rows.of(step)
        wanted = labels(target, text, temperature)
        masks = parallel.Masks.drawn(text.shape[1], num_parallel, rng)
        return [parallel.loss(run.model, text.to(target.device), wanted, masks)]

    train([run], losses, 60 * args.minutes, lambda: family.save(run.model, args.weights / PARALLEL))


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    if "corpus" in args.stages:
        make_corpus(args)
    if "target" in args.stages:
        train_target(args, stream(args))
    if "texts" in args.stages:
        write_texts(args, stream(args))
    if "drafts" in args.stages:
        train_drafts(args, stream(args))
    if "parallel" in args.stages:
        train_parallel(args)


if __name__ == "__main__":
    main()
