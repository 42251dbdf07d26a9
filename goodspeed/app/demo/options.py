"""The options of `goodspeed demo`, and its clients: users with one question each, dealt out to the draft nodes."""

from dataclasses import dataclass
from pathlib import Path

from goodspeed.embedded import models
from goodspeed.engine.model_files.names import NO_MODEL, SOURCE, is_url
from goodspeed.errors import CheckpointError, ConfigError
from goodspeed.fair import policies
from goodspeed.serving import options, prompts
from goodspeed.serving.config import Settings, option
from goodspeed.serving.prompts import Prompt
from goodspeed.untrusted import sanitize

QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""Eight questions of the project's own, one for each domain of the GoodSpeed paper's data sets."""

TARGET, WITHOUT_PACKAGES = "smollm2", "tiny-target"

DRAFT_MODELS = {
    TARGET: (NO_MODEL,) * 4,
    WITHOUT_PACKAGES: ("tiny-draft-s", "tiny-draft-m", "tiny-draft-p", NO_MODEL),
}
"""Draft models by target, one for each draft node; beside other targets four draft nodes have none."""

OF_PRESET: dict[str, tuple[str, ...]] = {TARGET: ("smollm2-draft",) * 4}
"""Instead of these, since the preset refuses draft nodes without a model."""


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Settings):
    """Settings of `goodspeed demo`; see its --help."""

    model: str = option(TARGET, "model", f"target model, which can chat: {options.NAMES}", metavar="NAME")
    draft_models: str | None = option(
        None,
        "model",
        "one for each draft node; none: n-grams only. Users are dealt out to the draft nodes",
        shown="four that fit the target",
        metavar="NAME,NAME",
    )
    policy: str = options.policy("gradient")
    preset: str | None = options.preset()
    verify_option: tuple[str, ...] = option(
        (), "nodes", "option of the verify node, as in --verify-option=--budget=16; may be repeated", metavar="WORD"
    )
    draft_option: tuple[str, ...] = option(
        (), "nodes", "option of all draft nodes, as in --draft-option=--drafter=model", metavar="WORD"
    )
    clients: int = option(8, "prompts", "users, who all ask at the same time", minimum=1, maximum=100)
    max_tokens: int = option(120, "prompts", "most tokens of an answer", minimum=1)
    temperature: float = option(0.0, "prompts", "0 is greedy", minimum=0.0, maximum=2.0, metavar="T")
    seed: int = options.seed("prompts", "seed of prompts without one", default=0)
    prompts: str | None = option(
        None,
        "prompts",
        "JSONL, a `prompt` and optionally `domain` and `seed` a line",
        shown="a question of each domain",
        metavar="FILE",
    )
    http: bool = option(
        False, "results", "open the verify node's page and a draft node's chat page; serve until Ctrl-C"
    )

    def check(self) -> None:
        """Raises ConfigError for a policy that cannot be made, and CheckpointError for a target whose package is not
        installed, with another way to see the demo."""
        policies.load(self.policy)
        policies.create(self.policy)
        if self.model in models.PACKAGED:
            try:
                models.packaged_file(self.model)
            except CheckpointError as error:
                raise CheckpointError(f"{error}; or see the demo with --model {WITHOUT_PACKAGES}") from None

    def draft_model_names(self) -> list[str]:
        """Returns the draft models by draft node."""
        if self.draft_models is None:
            names = DRAFT_MODELS.get(self.model, (NO_MODEL,) * 4)
            if self.preset is not None:
                return list(OF_PRESET.get(self.model) or (name for name in names if name != NO_MODEL))
            return list(names)
        return [name.strip() for name in self.draft_models.split(",") if name.strip()]


@dataclass(frozen=True)
class Client:
    """A user of the demo, whose question a draft node serves."""

    name: str
    draft_node: int  # index
    draft_model: str
    prompt: Prompt  # with a seed

    @property
    def domain(self) -> str:
        return self.prompt.domain or self.name


def draft_words(model: str, target: str) -> list[str]:
    """Returns `goodspeed-draft`'s options for a draft model, with the target's tokenizer if the model needs it."""
    needs = model == NO_MODEL or is_url(model) or models.is_gguf(model) or model.startswith(SOURCE)
    return [f"--model={model}", *([f"--tokenizer={target}"] if needs else [])]


def shown(model: str) -> str:
    """Returns a model's name for people, without folders."""
    return "n-grams" if model == NO_MODEL else sanitize(model.rstrip("/").rpartition("/")[2])


def clients(config: DemoConfig) -> list[Client]:
    """Returns the clients; client i gets prompt i and draft node i, modulo their numbers."""
    lines, names = prompts.read_file(config.prompts or QUESTIONS), config.draft_model_names()
    if not names:
        why = "--draft-models names none" if config.draft_models is not None else f"--preset {config.preset} needs some"
        raise ConfigError(f"no draft models: {why}; give one for each draft node, as in --draft-models NAME,NAME")
    found = []
    for index in range(config.clients):
        line, node = lines[index % len(lines)], index % len(names)
        if line.drafter is not None:
            raise ConfigError("--prompts: the demo writes each text with and without drafts; leave `drafter` out")
        prompt = Prompt(line.text, line.domain, config.seed if line.seed is None else line.seed)
        found.append(Client(f"client-{index + 1}", node, names[node], prompt))
    return found
