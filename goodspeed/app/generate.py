"""Runs one model alone with the engine of both nodes: the text that speculative decoding must reproduce."""

import argparse
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from goodspeed.app import form_options, token_options
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.matcher import Matcher
from goodspeed.constraint.trial import Trial
from goodspeed.engine.tokenizing.text_stream import GrowingText
from goodspeed.errors import ConfigError, ConstraintError
from goodspeed.serving import defaults, model_options, sampling_options
from goodspeed.serving.config import Settings, add_options, from_namespace, option
from goodspeed.serving.events import print_json
from goodspeed.serving.preflight import find_model
from goodspeed.serving.prompts import cut_notice
from goodspeed.serving.reporter import Reporter
from goodspeed.serving.running import add_common_options
from goodspeed.wire.fields import MAX_CONTEXT
from goodspeed.wire.generation import Constraint

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
    presence_penalty: float | None = sampling_options.presence_penalty(group="text", shown="0")
    frequency_penalty: float | None = sampling_options.frequency_penalty(group="text", shown="0")
    repetition_penalty: float | None = sampling_options.repetition_penalty(
        group="text", shown="what the model's makers say, else 1"
    )
    min_p: float | None = sampling_options.min_p(group="text", shown="what the model's makers say, else 0")
    logit_bias: tuple[str, ...] = sampling_options.logit_bias(group="text")
    min_tokens: int = option(
        0, minimum=0, maximum=MAX_CONTEXT, group="text", help="tokens before which nothing ends the text", metavar="N"
    )
    stop_token_id: tuple[str, ...] = sampling_options.stop_token_id(group="text")
    json_schema: str | None = form_options.json_schema(group="form")
    json_object: bool = form_options.json_object(group="form")
    regex: str | None = form_options.regex(group="form")
    choice: tuple[str, ...] = form_options.choice(group="form")
    grammar: str | None = form_options.grammar(group="form")
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
    constraint_of(config)  # a file that cannot be read is told before the model is loaded
    reporter = Reporter("goodspeed")
    find_model(config.model, reporter)
    reporter.say("loading %s ...", config.model)
    import torch  # after the options are checked: it takes seconds

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


def generate(config: GenerateConfig, checkpoint: "Checkpoint", on_text: Callable[[str], None]) -> dict[str, Any]:
    """Generates a text and returns the whole result; on_text gets the text piece by piece.

    `token_ids` go up to the token that completes a stop string; the text ends where the stop string begins. Before
    `min_tokens` a stop string is text like any other.
    """
    from goodspeed.app import generation
    from goodspeed.engine.runner import Runner
    from goodspeed.engine.tokenizing.text import encode, leaves_blank

    tokenizer = checkpoint.tokenizer
    prompt_ids = encode(tokenizer, config.prompt, chat=config.chat)
    wanted = generation.num_wanted(checkpoint, prompt_ids, config.max_tokens)
    _say_if_cut(config, len(prompt_ids), checkpoint.context_len)
    runner = Runner(checkpoint, num_pages=-(-(len(prompt_ids) + wanted) // PAGE_SIZE), page_size=PAGE_SIZE)
    asked = _sampling_request(config, checkpoint.num_tokens)
    stop_ids = token_options.read_stop_ids(config.stop_token_id, checkpoint.num_tokens)
    sampling, stops, rules = asked.resolve(defaults.of_checkpoint(checkpoint.settings, chat=config.chat))
    growing = GrowingText(tokenizer, stops, is_trimmed=leaves_blank(tokenizer, prompt_ids, chat=config.chat))
    pieces = list[str]()

    def give(text: str) -> None:
        pieces.append(text)
        on_text(text)

    started = time.perf_counter()
    tokens = generation.generate(
        checkpoint,
        runner,
        prompt_ids,
        sampling,
        wanted,
        (*checkpoint.eos_ids, *stop_ids),
        min_tokens=config.min_tokens,
        rules=rules,
        matcher=_matcher(config, checkpoint),
    )
    token_ids = _write(tokens, growing, config.min_tokens, give)
    elapsed_s = time.perf_counter() - started
    give(growing.end(counts=len(token_ids) >= config.min_tokens).text)
    finish_reason = "stop" if growing.stop is not None else generation.finish_reason(len(token_ids), wanted)
    return _result(config, "".join(pieces), token_ids, finish_reason, elapsed_s)


def _result(
    config: GenerateConfig, text: str, token_ids: list[int], finish_reason: str, elapsed_s: float
) -> dict[str, Any]:
    return {
        "model": config.model,
        "prompt": config.prompt,
        "seed": config.seed,
        "text": text,
        "token_ids": token_ids,
        "num_tokens": len(token_ids),
        "finish_reason": finish_reason,
        "tokens_per_s": len(token_ids) / elapsed_s,
    }


def _say_if_cut(config: GenerateConfig, num_prompt: int, context_len: int) -> None:
    if sentence := cut_notice(config.max_tokens, num_prompt, context_len, "the model's"):
        Reporter("goodspeed").say_all([sentence])


def _write(
    tokens: Generator[int, None, None], growing: GrowingText, min_tokens: int, give: Callable[[str], None]
) -> list[int]:
    """Gives the text of the tokens as they come, up to a stop string; returns those that came."""
    token_ids = list[int]()
    with closing(tokens):
        for token in tokens:
            token_ids.append(token)
            give(growing.push(token, counts=len(token_ids) >= min_tokens).text)
            if growing.stop is not None:
                break
    return token_ids


def constraint_of(config: GenerateConfig) -> Constraint | None:
    """The form that the options ask for."""
    return form_options.read_constraint(
        json_schema=config.json_schema,
        json_object=config.json_object,
        regex=config.regex,
        choice=config.choice,
        grammar=config.grammar,
    )


def _matcher(config: GenerateConfig, checkpoint: "Checkpoint") -> Matcher | None:
    """What follows the text by that form; ConfigError for one that does not compile."""
    constraint = constraint_of(config)
    if constraint is None:
        return None
    compiled = Constraints(checkpoint, Trial(checkpoint)).compiled(constraint)
    if isinstance(compiled, ConstraintError):
        raise ConfigError(f"{form_options.NAMES[constraint.kind]}: {compiled}")
    return Matcher(compiled)


def _sampling_request(config: GenerateConfig, vocab_size: int) -> defaults.SamplingRequest:
    return defaults.SamplingRequest(
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
        presence_penalty=config.presence_penalty,
        frequency_penalty=config.frequency_penalty,
        repetition_penalty=config.repetition_penalty,
        min_p=config.min_p,
        logit_bias=token_options.read_biases(config.logit_bias, vocab_size),
    )


def show(text: str) -> None:
    print(text, end="", flush=True)


def ignore(text: str) -> None:
    """Ignores a piece of text: under --json the text is printed as a whole."""
