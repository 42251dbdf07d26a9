"""The options of `goodspeed demo`, and its clients: one per draft node, with its model and prompt."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goodspeed.app.pad import in_cache
from goodspeed.embedded import models
from goodspeed.embedded.prompts import PATH as HELD_OUT
from goodspeed.engine import host_memory
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.errors import CheckpointError, ConfigError, need
from goodspeed.fair import policies
from goodspeed.serving import options, prompts
from goodspeed.serving.config import Settings, option
from goodspeed.serving.measuring import recording
from goodspeed.serving.options import NO_MODEL, is_url
from goodspeed.serving.prompts import Prompt
from goodspeed.slo.objectives import parse_tiers
from goodspeed.wire.fields import MAX_CONTEXT, Verification

DRAFT_NODE_BYTES, NGRAM_NODE_BYTES = 160 << 20, 80 << 20
"""Unshared memory of a draft node with a tiny model, and of one without a model."""

TARGET = "tiny-target"

PADDED_BYTES = 1200 << 20
"""Memory of a verify node with the padded target: weights, KV cache and libraries."""

MAX_HTTP_TEMPERATURE = 2.0
"""Highest temperature of requests over HTTP, as in the OpenAI API."""


def takes_tokenizer(draft_model: str) -> bool:
    """Returns whether draft nodes with this model are given the target's tokenizer."""
    return draft_model == NO_MODEL or is_url(draft_model) or models.is_gguf(draft_model)


@dataclass(frozen=True, kw_only=True)
class DemoConfig(Settings):
    """Settings of `goodspeed demo`; see its --help."""

    clients: int = option(8, minimum=1, group="rounds and budget", help="draft nodes", metavar="N")
    model: str | None = option(
        None,
        shown="tiny-target padded to 116M parameters, where memory suffices",
        group="model",
        help=f"target model: {options.NAMES}",
        metavar="NAME",
    )
    draft_models: str = option(
        "tiny-draft-s,tiny-draft-m",
        group="model",
        help="draft models, dealt out to the clients in turn",
        metavar="NAME,NAME",
    )
    drafters: str = option(
        "both",
        choices=("both", "model", "ngram"),
        group="model",
        help="both: draft nodes with models, which look up n-grams, too; model: models only, as in the paper; ngram: "
        "draft nodes without models, for which --draft-models does not count",
    )
    policy: str = options.policy("gradient")
    preset: str | None = options.preset()
    verification: Verification = options.verification()
    proposal: str = options.proposal()
    budget: int = option(
        24,
        minimum=1,
        maximum=1 << 30,
        group="rounds and budget",
        help="C: drafted tokens verified in a round",
        metavar="N",
    )
    slo_tier: tuple[str, ...] = options.slo_tier("service level; the clients ask for them in turn. May be repeated")
    max_tokens: int = option(
        150, minimum=1, maximum=MAX_CONTEXT, group="prompts", help="most tokens generated per client", metavar="N"
    )
    temperature: float = options.temperature(group="prompts", default=1.0)
    seed: int = options.seed(group="prompts", default=0, help="seed of prompts without one")
    prompts: str | None = option(
        None,
        shown="one of each domain",
        group="prompts",
        help="JSONL, a `prompt` and optionally `domain` and `seed` a line",
        metavar="FILE",
    )
    record: str | None = option(
        None,
        shown="nothing is recorded",
        group="results",
        help="write what was drafted, what agreed and how long it took, for simulations",
        metavar="FILE",
    )
    http: bool = option(
        False,
        group="results",
        help="serve the verify node's live page and each draft node's OpenAI API, until Ctrl-C; prompts go there",
    )
    png: str = option(
        "goodspeed-demo.png", group="results", help="picture of goodput and utility over rounds", metavar="PATH"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        options.take_preset(self, self.preset)

    @property
    def target(self) -> str:
        """The target model; before `with_target`, the one that its default is made of."""
        return self.model or TARGET

    @property
    def model_name(self) -> str:
        """The target's name; of a folder or file only the final part."""
        return Path(self.target).name if Path(self.target).exists() else self.target

    def with_target(self, say: Callable[..., None]) -> "DemoConfig":
        """Returns the settings with a target: the padded one by default, which the first run makes.

        say: called with a %-format and its values.
        """
        if self.model is not None:
            return self
        if host_memory.available_bytes() < PADDED_BYTES + self.clients * DRAFT_NODE_BYTES:
            say("memory is short, so the demo runs %s as it is, whose passes are mostly overhead", TARGET)
            return replace(self, model=TARGET)
        try:
            return replace(self, model=str(in_cache(TARGET, say=say)))
        except ConfigError as error:
            say("%s could not be padded (%s), so the demo runs it as it is", TARGET, error)
            return replace(self, model=TARGET)

    @property
    def rounds(self) -> str:
        """Mode of the rounds. "barrier": a round waits for every draft."""
        return "barrier" if self.preset == "paper" else "continuous"

    def check(self) -> None:
        """Raises ConfigError early for options that would otherwise fail after the nodes have started."""
        policies.load(self.policy)
        policies.create(self.policy)  # raises
        parse_tiers(self.slo_tier)
        each = NGRAM_NODE_BYTES if self.drafters == "ngram" else DRAFT_NODE_BYTES
        available = host_memory.available_bytes()
        if self.clients > DemoConfig.clients and self.clients * each > available:  # a small machine may swap eight
            raise ConfigError(
                f"--clients {self.clients}: so many processes take {self.clients * each / 1e9:.1f} GB of memory or "
                f"more, and {available / 1e9:.1f} GB are available; ask for at most "
                f"{max(DemoConfig.clients, available // each)}"
            )
        if self.http and self.temperature > MAX_HTTP_TEMPERATURE:
            raise ConfigError(f"--temperature {self.temperature:g}: over HTTP it is {MAX_HTTP_TEMPERATURE:g} at most")
        for name in ("draft_models", "proposal") if self.drafters == "ngram" else ():
            if getattr(self, name) != getattr(DemoConfig, name):
                flag = "--" + name.replace("_", "-")
                raise ConfigError(f"{flag} is for draft models, and --drafters ngram has none; drop one of them")
        for name in filter(is_url, self.draft_model_names()):
            of_ratio = {
                "--preset paper": self.preset is not None,
                "--verification ratio": self.verification == "ratio",
                "--proposal": self.proposal != DemoConfig.proposal,
            }
            for flag in (flag for flag, is_given in of_ratio.items() if is_given):
                what = f"llama.cpp's server does not give the whole distributions that {flag} needs"
                raise ConfigError(f"--draft-models {name}: {what}; drop one of them")
        for name, path in (("--png", self.png), ("--record", self.record)):
            folder = Path(path or ".").absolute().parent
            if path is not None and not folder.is_dir():
                raise ConfigError(f"{name} {path}: there is no folder {folder}; make it, or choose another")
        if self.record is not None:
            recording.check(self.record)

    def find_draft_models(self, say: Callable[..., None]) -> None:
        """Downloads hub models; a named error for one that draft nodes would miss once the target has loaded.

        say: as of `with_target`, whose default has a tokenizer.
        """
        from goodspeed.engine import sources  # late: it imports the hub's client

        for name in dict.fromkeys(self.draft_model_names()):
            if takes_tokenizer(name):
                try:
                    sources.find_tokenizer(self.target)
                except CheckpointError:
                    if models.is_gguf(self.target):
                        sources.find_source(self.target)  # says what is wrong with the file
                    which, file = self._draft_nodes(name), tokenizer_folder.FILE
                    what = f"{which} need the target's tokenizer, and there is no {file}"
                    where = "an embedded model or a checkpoint's folder that has it"
                    raise ConfigError(f"--model {self.target}: {what}; name {where}") from None
            if name == NO_MODEL or is_url(name):
                continue
            if sources.kind_of(name) != "checkpoint":
                need(self._draft_nodes(name), "torch,openvino", "torch", "openvino")
            sources.find_source(name, say)

    @staticmethod
    def _draft_nodes(name: str) -> str:
        return "--drafters ngram" if name == NO_MODEL else f"--draft-models {name}"

    def draft_model_names(self) -> list[str]:
        """Returns the draft models, assigned to the clients in turn; [NO_MODEL] for draft nodes without a model."""
        if self.drafters == "ngram":
            return [NO_MODEL]
        names = [name.strip() for name in self.draft_models.split(",") if name.strip()]
        if not names:
            raise ConfigError("--draft-models names no model; give one, or several with commas between them")
        return names


@dataclass(frozen=True)
class Client:
    """A draft node of the demo with its user's request."""

    name: str
    draft_model: str
    prompt: Prompt  # with a seed
    tier: str | None = None  # requested service level

    @property
    def domain(self) -> str:
        return self.prompt.domain


def clients(config: DemoConfig) -> list[Client]:
    """Returns the clients; client i gets prompt i, modulo the number of prompts."""
    lines = prompts.read_file(config.prompts or HELD_OUT)
    if config.prompts is None:
        lines = [replace(line, seed=None) for line in lines]  # so that --seed applies
    models = config.draft_model_names()
    tiers: Sequence[str | None] = [*parse_tiers(config.slo_tier)] or [None]
    if config.clients > len(lines):
        print(f"{config.clients} clients share {len(lines)} prompts: some texts come twice", file=sys.stderr)
    found = []
    for index in range(config.clients):
        line = lines[index % len(lines)]
        prompt = replace(line, seed=config.seed if line.seed is None else line.seed, drafter=None)
        found.append(Client(f"client-{index + 1}", models[index % len(models)], prompt, tiers[index % len(tiers)]))
    return found
