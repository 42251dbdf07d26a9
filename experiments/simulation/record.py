"""Records what draft models and n-grams propose for a target's answers, for experiments (`--recordings FILE`).

The target answers every prompt at every temperature, by its chat template if it has one, until it ends by itself or
has --max-tokens tokens. For each position of an answer the file then has what each draft model, an index of the text
and an index of the domain's other texts propose there, and what the target makes of it (docs/SIMULATION.md).
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from experiments.harness.progress import parts
from experiments.simulation.texts import proposals
from experiments.simulation.texts.proposals import MOST, ModelPath, Source, Text, Title
from goodspeed.errors import ConfigError, PromptError
from goodspeed.serving import running
from goodspeed.serving.events import Reporter
from goodspeed.serving.parser import CommandLine
from training import chats

if TYPE_CHECKING:  # after the options are checked: torch takes seconds
    from experiments.simulation.texts.target_texts import TargetText
    from goodspeed.engine.base import Checkpoint

Item = TypeVar("Item")
PROMPTS = Path(__file__).parents[1] / "prompts"
NONE = "none"
EXAMPLE = f"{proposals.COMMAND} --model smollm2 --draft smollm2-draft --out mine.jsonl.gz"


def questions(
    target: "Checkpoint", path: Path, temperatures: Sequence[float], num_tokens: int, context_len: int
) -> "list[TargetText]":
    """Returns the answers that are to be written. PromptError if one does not fit into the models' context."""
    from experiments.simulation.texts.target_texts import TargetText
    from goodspeed.engine.tokenizing.text import encode
    from goodspeed.wire.messages import Sampling

    is_chat = bool(getattr(target.tokenizer, "chat_template", None))
    found = []
    for seed, (domain, chat) in enumerate((domain, chat) for domain, own in chats.load(path).items() for chat in own):
        ids = tuple(encode(target.tokenizer, chat.turns[0], chat=is_chat))
        room = context_len - len(ids) - num_tokens - MOST
        if room < 0:
            what = f"prompt {chat.id} of {domain} has {len(ids)} tokens, {-room} too many for the models' context"
            raise PromptError(f"{what}; leave it out, or lower --max-tokens")
        found.append(TargetText(domain, Sampling(0.0, seed=seed), ids, id=chat.id))
    return [
        one._replace(sampling=Sampling(temperature, seed=one.sampling.seed))
        for temperature in temperatures
        for one in found
    ]


def record(
    target: "Checkpoint", drafts: "dict[str, Checkpoint]", wanted: "Sequence[TargetText]", num_tokens: int
) -> list[Text]:
    """Returns what is proposed for the target's answers of at most num_tokens tokens; those without a token are left
    out."""
    from experiments.simulation.texts.drafted import AT_ONCE, index_proposals, model_paths
    from experiments.simulation.texts.target_texts import answers, grouped, index_of_others

    given = [text for text in _counted("answers", answers(target, wanted, num_tokens), len(wanted)) if text.written]
    if not given:
        raise ConfigError(f"{target.name} ends every answer before its first token; use other prompts")
    paths: list[dict[str, ModelPath]] = [{} for _ in given]
    if drafts:
        batches = model_paths(target, drafts, given)
        told = _counted(f"batches of {AT_ONCE} answers", batches, -(-len(given) // AT_ONCE))
        paths = [one for batch in told for one in batch]
    groups = {(group[0].domain, group[0].sampling.temperature): group for group in grouped(given)}

    def text(one: "TargetText", models: dict[str, ModelPath]) -> Text:
        others = index_of_others(groups[one.domain, one.sampling.temperature], one)
        return Text(
            domain=one.domain,
            temperature=one.sampling.temperature,
            seed=one.sampling.seed,
            prompt_len=len(one.prompt),
            own=proposals.joined(index_proposals(one, [])),
            history=proposals.joined(index_proposals(one, [others])),
            models=models,
            id=one.id,
            ended=one.ended,
        )

    pairs = zip(given, paths, strict=True)
    return [text(one, models) for one, models in parts("n-grams", pairs)]


def _counted(what: str, items: Iterator[Item], number: int) -> Iterator[Item]:
    """Yields so many items, and tells how many there were."""
    for _ in parts(what, range(number)):
        yield next(items)


def table(found: Sequence[Text], draft_models: Sequence[str]) -> str:
    """Lines with the share of positions at which each source's first token is right, by domain and temperature."""
    columns = (*draft_models, *INDEXES)
    lines = [f"{'domain':<16}{'T':>4}{'texts':>7}{'tokens':>8}" + "".join(f"  {name:>6}" for name in columns)]
    for domain, temperature in sorted({(text.domain, text.temperature) for text in found}):
        own = [text for text in found if (text.domain, text.temperature) == (domain, temperature)]
        num_tokens = sum(text.num_tokens for text in own)
        right = [sum(text.models[name].agreed.count("1") for text in own) for name in draft_models]
        for source in INDEXES.values():
            right.append(sum(one.num_right > 0 for text in own for one in text.proposals(source)))
        shares = [f"{each / num_tokens:>{2 + max(6, len(name))}.2f}" for name, each in zip(columns, right, strict=True)]
        lines.append(f"{domain:<16}{temperature:>4g}{len(own):>7}{num_tokens:>8}" + "".join(shares))
    return "\n".join(lines)


INDEXES: dict[str, Source] = {"n-grams": "own", "with others": "history"}


def parser() -> CommandLine:
    found = CommandLine(prog=proposals.COMMAND, description=__doc__, example=EXAMPLE)
    found.add_argument("--model", required=True, metavar="TARGET", help="the target: name, folder or GGUF file")
    found.add_argument(
        "--draft",
        action="append",
        default=[],
        metavar="MODEL",
        help="a draft model; several times for several, of which the first two stand for a family's smaller and larger"
        f" one; {NONE}: only n-grams, which are always recorded",
    )
    found.add_argument(
        "--prompts",
        type=Path,
        default=PROMPTS,
        metavar="PATH",
        help="a file, or a folder of *.jsonl files, one for each domain, with a line "
        '{"id": "...", "turns": ["..."]} for each prompt (default: 209 of our own in eight domains)',
    )
    found.add_argument(
        "--temperature",
        type=temperature_of,
        action="append",
        metavar="T",
        help="several times for several (default: 0, 1)",
    )
    found.add_argument("--max-tokens", type=positive, default=192, metavar="N", help="most tokens of an answer (192)")
    found.add_argument("--out", required=True, metavar="FILE", help="where the recording goes, *.jsonl.gz")
    found.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    found.add_argument("--threads", type=positive, default=1, metavar="N", help="CPU threads (default: 1)")
    running.add_log_option(found)
    return found


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def temperature_of(text: str) -> float:
    number = float(text)
    if not 0.0 <= number <= 2.0:
        raise argparse.ArgumentTypeError(f"{number:g} is not between 0 and 2")
    return number


def run(options: argparse.Namespace) -> int:
    names = [name for name in options.draft if name != NONE]
    shown = [Path(name).name.removesuffix(".gguf") if Path(name).exists() else name for name in names]
    if len(set(shown)) < len(shown):
        raise ConfigError(f"--draft {', '.join(shown)}: two draft models have one name; rename a file")
    check_place(Path(options.out))
    temperatures = sorted(set(options.temperature or (0.0, 1.0)))
    reporter = Reporter(proposals.COMMAND)
    for name in (options.model, *names):
        running.find_model(name, reporter, options.device)
    chats.load(options.prompts)  # raises
    from goodspeed.engine import engines

    target, *drafts = [
        engines.load(name, device=options.device, num_threads=options.threads) for name in (options.model, *names)
    ]
    engines.set_threads(options.threads, *(model.engine for model in (target, *drafts)))
    for draft in drafts:
        check(target, draft)
    context_len = min(model.context_len for model in (target, *drafts))
    wanted = questions(target, options.prompts, temperatures, options.max_tokens, context_len)
    found = record(target, dict(zip(shown, drafts, strict=True)), wanted, options.max_tokens)
    model = Path(options.model).name
    title = Title(proposals.VERSION, model, tuple(shown), options.max_tokens, options.prompts.name)
    proposals.save(title, found, options.out)
    print(table(found, shown))
    print(f"{options.out}: {len(found)} texts; give it to an experiment by --recordings")
    return 0


def check_place(out: Path) -> None:
    """Raises ConfigError if nothing can be written there: recording takes minutes."""
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise ConfigError(f"the recording cannot be written to {out}; choose another place")


def check(target: "Checkpoint", draft: "Checkpoint") -> None:
    """Raises ConfigError for a draft model with another tokenizer than the target's."""
    if draft.tokenizer_fingerprint != target.tokenizer_fingerprint:
        what = f"--draft {draft.name}: its tokenizer is not that of {target.name}"
        raise ConfigError(f"{what}; use a draft model of the target's family")


def main() -> int:
    return running.run(proposals.COMMAND, parser(), run)


if __name__ == "__main__":
    sys.exit(main())
