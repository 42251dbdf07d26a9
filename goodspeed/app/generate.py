"""Generates a text with one model alone: the text that speculative decoding must reproduce."""

import argparse
import sys
import time
from contextlib import closing
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from goodspeed.engine.tokenizing.text_stream import LeadingWhitespace, StopFinder, TextStream
from goodspeed.errors import ConfigError
from goodspeed.serving import options, sampling_defaults
from goodspeed.serving.config import add_options, from_namespace, option
from goodspeed.serving.events import Reporter, print_json
from goodspeed.serving.running import add_common_options, find_model
from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.wire.fields import MAX_CONTEXT

if TYPE_CHECKING:
    from goodspeed.engine.base import Checkpoint

NAME = "generate"
HELP = "run one model alone: the thing to compare with"
EXAMPLE = 'goodspeed generate --prompt "def read_lines(path):" --max-tokens 40 --temperature 0.7 --seed 1'
PAGE_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(options.ModelSettings, options.SamplingSettings):
    """Settings of `goodspeed generate`; see its --help."""

    model: str = option("tiny-target", options.MODEL, options.NAMES, metavar="NAME")
    prompt: str = option(MISSING, "text", "the text to go on from", metavar="TEXT")
    chat: bool = option(False, "text", "put the prompt through the tokenizer's chat template, as one user message")
    max_tokens: int = option(150, "text", "most tokens generated", minimum=1, maximum=MAX_CONTEXT)
    seed: int = options.seed("text", "the same seed gives the same text", default=0)
    generation_config: str = option(
        "auto",
        options.MODEL,
        "auto: options left out come from the checkpoint's generation_config.json (with --chat "
        "chat_generation_config.json, too); none: temperature 1, top-k and top-p off, no stop strings",
        choices=("auto", "none"),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, GenerateConfig)
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(GenerateConfig, namespace)
    if not config.prompt:
        raise ConfigError("--prompt is empty; give at least one character")
    reporter = Reporter("goodspeed")
    find_model(config.model, reporter, config.device, config.dtype, engine=config.engine)
    reporter.say("loading %s ...", config.model)
    from goodspeed.engine import engines  # after the options are checked: torch takes seconds

    checkpoint = engines.load(config.model, generation_config=config.generation_config, **config.computed_by)
    result = generate(config, checkpoint, shows=not namespace.json)
    if namespace.json:
        print_json(result)
    else:
        print(flush=True)
    print(f"{result['num_tokens']} tokens, {result['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
    return 0


def generate(config: GenerateConfig, checkpoint: "Checkpoint", *, shows: bool = False) -> dict[str, Any]:
    """Generates a text; returns the whole result. shows: also prints the text piece by piece.

    The result's `token_ids` include the token that completes a stop string; the text ends where the stop string begins.
    """
    from goodspeed.app import reference
    from goodspeed.engine import engines
    from goodspeed.engine.tokenizing.text import encode, leaves_blank

    tokenizer = checkpoint.tokenizer
    prompt_ids = encode(tokenizer, config.prompt, chat=config.chat)
    wanted = reference.num_wanted(checkpoint, prompt_ids, config.max_tokens)
    _say_if_cut(config, len(prompt_ids), checkpoint.context_len)
    engine = engines.start(checkpoint, num_pages=-(-(len(prompt_ids) + wanted) // PAGE_SIZE), page_size=PAGE_SIZE)
    asked = SamplingRequest(temperature=config.temperature, seed=config.seed).filled(config.node_sampling)
    sampling, stops, rules = asked.resolve(sampling_defaults.of_checkpoint(checkpoint.settings, chat=config.chat))
    stream, finder = TextStream(tokenizer, before=() if config.chat else prompt_ids), StopFinder(stops)
    leading = LeadingWhitespace(is_left_out=leaves_blank(tokenizer, prompt_ids, chat=config.chat))
    pieces, token_ids = list[str](), list[int]()
    started = time.perf_counter()
    tokens = reference.generate(checkpoint, engine, prompt_ids, sampling, wanted, checkpoint.eos_ids, rules=rules)
    with closing(tokens):
        for token in tokens:
            token_ids.append(token)
            pieces.append(leading.push(finder.push(stream.push([token]))))
            if shows:
                print(pieces[-1], end="", flush=True)
            if finder.found is not None:
                break
    elapsed_s = time.perf_counter() - started
    pieces.append(leading.push(finder.push(stream.end()) + finder.end()))
    if shows:
        print(pieces[-1], end="", flush=True)
    return {
        "model": config.model,
        "prompt": config.prompt,
        "seed": config.seed,
        "text": "".join(pieces),
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": "length" if finder.found is None and len(token_ids) == wanted else "stop",
        "tokens_per_s": len(token_ids) / elapsed_s,
    }


def _say_if_cut(config: GenerateConfig, num_prompt: int, context_len: int) -> None:
    room = context_len - num_prompt
    if 0 < room < config.max_tokens:
        what = "--max-tokens %d is reduced to %d: the model's context has %d tokens, and the prompt takes %d of them; "
        what += "a text that fills the context ends with finish_reason length"
        Reporter("goodspeed").say(what, config.max_tokens, room, context_len, num_prompt)
