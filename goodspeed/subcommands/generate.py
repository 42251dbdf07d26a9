"""Runs one model alone with the engine of both nodes: the text that speculative decoding must reproduce."""

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goodspeed.command import add_common_options
from goodspeed.config import Settings, add_options, from_namespace, option
from goodspeed.errors import PromptError
from goodspeed.events import print_json
from goodspeed.messages import MAX_CONTEXT, Sampling

if TYPE_CHECKING:
    from goodspeed.engine.checkpoints import Checkpoint

NAME = "generate"
HELP = "run one model alone: the thing to compare with"


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Settings):
    """See `goodspeed generate --help`."""

    model: str = option("tiny-target", help="an embedded name, a local folder, or a hub name", metavar="NAME")
    prompt: str = option(help="the text to go on from", metavar="TEXT")
    max_tokens: int = option(150, minimum=1, maximum=MAX_CONTEXT, help="most tokens generated", metavar="N")
    temperature: float = option(1.0, minimum=0.0, maximum=100.0, help="0 is greedy", metavar="T")
    top_k: int = option(0, minimum=0, maximum=(1 << 31) - 1, help="sample among the K likeliest; 0 is off", metavar="K")
    top_p: float = option(1.0, minimum=1e-6, maximum=1.0, help="sample among the likeliest that make P", metavar="P")
    seed: int = option(0, minimum=0, maximum=(1 << 63) - 1, help="the same seed gives the same text", metavar="N")
    device: str = option("cpu", help="cpu, cuda, or cuda:INDEX")
    dtype: str = option("float32", choices=("float32", "bfloat16", "float16"), help="precision of the forward pass")
    threads: int | None = option(None, minimum=1, help="CPU threads of the model; default: one", metavar="N")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, GenerateConfig)
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(GenerateConfig, namespace)
    if not config.prompt:
        raise PromptError("--prompt is empty; give at least one character")
    # After the options are checked: importing torch takes seconds that a wrong option should not cost.
    import torch

    from goodspeed.engine import checkpoints

    torch.set_num_threads(config.threads or 1)
    checkpoint = checkpoints.load(config.model, device=config.device, dtype=config.dtype)
    result = write(config, checkpoint, live=not namespace.json)
    if namespace.json:
        print_json(result)
    return 0


def write(config: GenerateConfig, checkpoint: "Checkpoint", *, live: bool) -> dict[str, Any]:
    """Generates, on standard output as it comes if live, and returns the whole."""
    from goodspeed import generation
    from goodspeed.engine.runner import Runner
    from goodspeed.engine.text import encode_prompt
    from goodspeed.text_stream import TextStream

    prompt_ids = encode_prompt(checkpoint.tokenizer, config.prompt)
    wanted = generation.num_wanted(checkpoint, prompt_ids, config.max_tokens)
    runner = Runner(checkpoint, num_pages=-(-(len(prompt_ids) + wanted) // 16), page_size=16)
    sampling = Sampling(config.temperature, config.top_k, config.top_p, config.seed)
    stream, token_ids, shown = TextStream(checkpoint.tokenizer), list[int](), list[str]()

    def show(text: str, end: str = "") -> None:
        shown.append(text)
        if live:
            print(text, end=end, flush=True)

    started = time.perf_counter()
    for token in generation.generate(checkpoint, runner, prompt_ids, sampling, wanted, checkpoint.eos_ids):
        token_ids.append(token)
        show(stream.push([token]))
    elapsed_s = time.perf_counter() - started
    show(stream.end(), end="\n")
    tokens_per_s = len(token_ids) / elapsed_s
    print(f"{len(token_ids)} tokens, {tokens_per_s:.1f} tokens/s", file=sys.stderr)
    return {
        "model": config.model,
        "prompt": config.prompt,
        "seed": config.seed,
        "text": "".join(shown),
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": generation.finish_reason(len(token_ids), wanted),
        "tokens_per_s": tokens_per_s,
    }
