"""Runs one model alone with the engine of both nodes: the text that speculative decoding must reproduce."""

import argparse
import sys
import time
from collections.abc import Callable
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
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Settings):
    """See `goodspeed generate --help`."""

    model: str = option("tiny-target", help="an embedded name, a local folder, or a hub name", metavar="NAME")
    prompt: str = option(help="the text to go on from", metavar="TEXT")
    chat: bool = option(False, help="put the prompt through the tokenizer's chat template, as one user message")
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
    result = generate(config, checkpoint, ignore if namespace.json else show)
    if namespace.json:
        print_json(result)
    else:
        print(flush=True)
    print(f"{result['num_tokens']} tokens, {result['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
    return 0


def generate(config: GenerateConfig, checkpoint: "Checkpoint", on_text: Callable[[str], None]) -> dict[str, Any]:
    """The whole result; on_text gets the text piece by piece as it comes."""
    from goodspeed import generation
    from goodspeed.engine.runner import Runner
    from goodspeed.engine.text import encode_chat, encode_prompt
    from goodspeed.text_stream import TextStream

    if config.chat:
        prompt_ids = encode_chat(checkpoint.tokenizer, [{"role": "user", "content": config.prompt}])
    else:
        prompt_ids = encode_prompt(checkpoint.tokenizer, config.prompt)
    wanted = generation.num_wanted(checkpoint, prompt_ids, config.max_tokens)
    runner = Runner(checkpoint, num_pages=-(-(len(prompt_ids) + wanted) // PAGE_SIZE), page_size=PAGE_SIZE)
    sampling = Sampling(config.temperature, config.top_k, config.top_p, config.seed)
    stream, token_ids, pieces = TextStream(checkpoint.tokenizer), list[int](), list[str]()
    started = time.perf_counter()
    for token in generation.generate(checkpoint, runner, prompt_ids, sampling, wanted, checkpoint.eos_ids):
        token_ids.append(token)
        pieces.append(stream.push([token]))
        on_text(pieces[-1])
    elapsed_s = time.perf_counter() - started
    pieces.append(stream.end())
    on_text(pieces[-1])
    return {
        "model": config.model,
        "prompt": config.prompt,
        "seed": config.seed,
        "text": "".join(pieces),
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": generation.finish_reason(len(token_ids), wanted),
        "tokens_per_s": len(token_ids) / elapsed_s,
    }


def show(text: str) -> None:
    print(text, end="", flush=True)


def ignore(text: str) -> None:
    """Under --json the text comes as a whole."""
