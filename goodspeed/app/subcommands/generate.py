"""Runs one model alone with the engine of both nodes: the text that speculative decoding must reproduce."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goodspeed.command import model_options, sampling_options
from goodspeed.command.config import Settings, add_options, from_namespace, option
from goodspeed.command.events import print_json
from goodspeed.command.reporter import Reporter
from goodspeed.command.running import add_common_options
from goodspeed.errors import ConfigError
from goodspeed.node import defaults
from goodspeed.text.leading_whitespace import LeadingWhitespace
from goodspeed.text.prompts import cut_notice
from goodspeed.text.stops import StopFinder
from goodspeed.text.streaming import TextStream
from goodspeed.wire.messages import MAX_CONTEXT, Defaults, Sampling

if TYPE_CHECKING:
    from goodspeed.engine.checkpoints import Checkpoint

NAME = "generate"
HELP = "run one model alone: the thing to compare with"
EXAMPLE = 'goodspeed generate --prompt "def read_lines(path):" --max-tokens 40 --temperature 0.7 --seed 1'
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(Settings):
    """Settings of `goodspeed generate`; see its --help."""

    model: str = model_options.model(default="tiny-target")
    prompt: str = option(group="text", help="the text to go on from", metavar="TEXT")
    chat: bool = option(
        False, group="text", help="put the prompt through the tokenizer's chat template, as one user message"
    )
    max_tokens: int = option(
        150, minimum=1, maximum=MAX_CONTEXT, group="text", help="most tokens generated", metavar="N"
    )
    temperature: float | None = sampling_options.temperature(group="text", shown="what the model's makers say, else 1")
    top_k: int | None = sampling_options.top_k(group="text", shown="what the model's makers say, else 0")
    top_p: float | None = sampling_options.top_p(group="text", shown="what the model's makers say, else 1")
    seed: int = sampling_options.seed(group="text", default=0, help="the same seed gives the same text")
    generation_config: str = model_options.generation_config(
        "auto: options left out come from the checkpoint's generation_config.json (with --chat "
        "chat_generation_config.json, too); none: temperature 1, top-k and top-p off, no stop strings"
    )
    device: str = model_options.device()
    dtype: str = model_options.dtype()
    threads: int | None = model_options.threads()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, GenerateConfig)
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(GenerateConfig, namespace)
    if not config.prompt:
        raise ConfigError("--prompt is empty; give at least one character")
    # After the options are checked: what finds models is slow to import, and torch takes seconds.
    from goodspeed.engine.folders import find_folder

    reporter = Reporter("goodspeed")
    find_folder(config.model, reporter.say)
    reporter.say("loading %s ...", config.model)
    import torch

    from goodspeed.engine import checkpoints

    torch.set_num_threads(config.threads or 1)
    checkpoint = checkpoints.load(
        config.model, device=config.device, dtype=config.dtype, generation_config=config.generation_config
    )
    result = generate(config, checkpoint, ignore if namespace.json else show)
    if namespace.json:
        print_json(result)
    else:
        print(flush=True)
    print(f"{result['num_tokens']} tokens, {result['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
    return 0


class Written:
    """A text as a draft node returns it: up to its first stop string, and a chat without leading whitespace."""

    def __init__(
        self, tokenizer: Any, stops: Sequence[str], *, is_trimmed: bool, on_text: Callable[[str], None]
    ) -> None:
        self.text = ""
        self._stream = TextStream(tokenizer)
        self._stops = StopFinder(stops)
        self._leading = LeadingWhitespace(is_left_out=is_trimmed)
        self._on_text = on_text

    @property
    def is_stopped(self) -> bool:
        return self._stops.found is not None

    def push(self, token: int) -> None:
        self._give(self._stops.push(self._stream.push([token])))

    def end(self) -> None:
        """Ends the text, and releases what was held back."""
        self._give(self._stops.push(self._stream.end()) + self._stops.end())

    def _give(self, text: str) -> None:
        text = self._leading.push(text)
        self.text += text
        self._on_text(text)


def generate(config: GenerateConfig, checkpoint: "Checkpoint", on_text: Callable[[str], None]) -> dict[str, Any]:
    """Generates a text and returns the whole result; on_text gets the text piece by piece.

    `token_ids` go up to the token that completes a stop string; the text ends where the stop string begins.
    """
    from goodspeed.app import generation
    from goodspeed.engine.runner import Runner
    from goodspeed.engine.text import encode_chat, encode_prompt, ends_blank

    tokenizer = checkpoint.tokenizer
    if config.chat:
        prompt_ids = encode_chat(tokenizer, [{"role": "user", "content": config.prompt}])
    else:
        prompt_ids = encode_prompt(tokenizer, config.prompt)
    wanted = generation.num_wanted(checkpoint, prompt_ids, config.max_tokens)
    if sentence := cut_notice(config.max_tokens, len(prompt_ids), checkpoint.context_len, "the model's"):
        Reporter("goodspeed").say_all([sentence])
    runner = Runner(checkpoint, num_pages=-(-(len(prompt_ids) + wanted) // PAGE_SIZE), page_size=PAGE_SIZE)
    says = defaults.of_checkpoint(checkpoint.settings, chat=config.chat)
    is_trimmed = config.chat and not ends_blank(tokenizer, prompt_ids)
    written, token_ids = Written(tokenizer, says.stop, is_trimmed=is_trimmed, on_text=on_text), list[int]()
    started = time.perf_counter()
    tokens = generation.generate(checkpoint, runner, prompt_ids, _sampling(config, says), wanted, checkpoint.eos_ids)
    with closing(tokens):
        for token in tokens:
            token_ids.append(token)
            written.push(token)
            if written.is_stopped:
                break
    elapsed_s = time.perf_counter() - started
    written.end()
    return {
        "model": config.model,
        "prompt": config.prompt,
        "seed": config.seed,
        "text": written.text,
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": "stop" if written.is_stopped else generation.finish_reason(len(token_ids), wanted),
        "tokens_per_s": len(token_ids) / elapsed_s,
    }


def _sampling(config: GenerateConfig, says: Defaults) -> Sampling:
    return defaults.sampling(
        says, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p, seed=config.seed
    )


def show(text: str) -> None:
    print(text, end="", flush=True)


def ignore(text: str) -> None:
    """Ignores a piece of text: under --json the text is printed as a whole."""
