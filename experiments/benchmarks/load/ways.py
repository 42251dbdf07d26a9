"""The ways of writing the same texts that `end_to_end` compares."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

from experiments.benchmarks.nodes.workers import DraftWorker, Wanted, serve_all
from goodspeed.engine.torch import checkpoints
from goodspeed.wire.fields import MAX_DRAFT

TARGET, DRAFTS = "tiny-target", ("tiny-draft-s", "tiny-draft-m")
LOOKUP_TOKENS = 10  # what the documentation of transformers shows

ALONE = ("plain", "assisted", "prompt_lookup", "plain_8")
SERVED = ("goodspeed_1", "goodspeed_1_no_speculation", "goodspeed_8", "goodspeed_8_no_speculation")
WAYS = (*ALONE, *SERVED)


@dataclass(frozen=True)
class Text:
    """A prompt's ids, and the seed of what is written after it."""

    ids: list[int]
    seed: int


@dataclass(frozen=True)
class Written:
    """A text and the number of its prompt among those of the repetition."""

    number: int
    tokens: list[int]


Way: TypeAlias = Callable[[Sequence[Text]], list[Written]]


class Alone:
    """The target through `transformers` alone; its models are loaded when a way first needs them."""

    def __init__(self, target: str, num_tokens: int, temperature: float, device: str = "cpu") -> None:
        self.target = target
        self.num_tokens = num_tokens
        self.temperature = temperature
        self.device = device

    def plain(self, texts: Sequence[Text]) -> list[Written]:
        return self._one_by_one(texts)

    def assisted(self, texts: Sequence[Text]) -> list[Written]:
        return self._one_by_one(texts, assistant_model=for_generate(DRAFTS[0], self.device))

    def prompt_lookup(self, texts: Sequence[Text]) -> list[Written]:
        return self._one_by_one(texts, prompt_lookup_num_tokens=LOOKUP_TOKENS)

    def plain_8(self, texts: Sequence[Text]) -> list[Written]:
        longest = max(len(text.ids) for text in texts)
        ids = self._on_device([[0] * (longest - len(text.ids)) + text.ids for text in texts])
        mask = self._on_device([[0] * (longest - len(text.ids)) + [1] * len(text.ids) for text in texts])
        return [Written(*one) for one in enumerate(self._generate(ids, attention_mask=mask))]

    def _one_by_one(self, texts: Sequence[Text], **options: Any) -> list[Written]:
        rows = (self._generate(self._on_device([text.ids]), **options)[0] for text in texts)
        return [Written(*one) for one in enumerate(rows)]

    def _on_device(self, rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor(rows, device=self.device)

    @torch.inference_mode()
    def _generate(self, ids: torch.Tensor, **options: Any) -> list[list[int]]:
        options.setdefault("attention_mask", torch.ones_like(ids))
        how = {"do_sample": True, "temperature": self.temperature, "top_k": 0} if self.temperature else {}
        out = for_generate(self.target, self.device).generate(
            ids, max_new_tokens=self.num_tokens, pad_token_id=0, **({"do_sample": False} | how), **options
        )
        tokens: list[list[int]] = out[:, ids.shape[1] :].tolist()
        return tokens


@cache
def for_generate(name: str, device: str) -> Any:
    """Loads a model with `from_pretrained`, in the verify node's default precision, and removes whatever ends a text
    before its length."""
    checkpoint = checkpoints.load(name, device=device, dtype="auto")
    model: Any = checkpoint.model
    model.generation_config.eos_token_id = None
    return model


class ByGoodSpeed:
    """The same texts through GoodSpeed's processes."""

    def __init__(self, nodes: Sequence[DraftWorker], num_tokens: int, turns: int, temperature: float) -> None:
        self.nodes = nodes
        self.num_tokens = num_tokens
        self.turns = turns
        self.temperature = temperature
        self.num_drafted: dict[str, Counter[str]] = {}  # by way, then by source and "all"
        self.num_accepted: dict[str, Counter[str]] = {}

    def write(self, way: str, texts: Sequence[Text]) -> list[Written]:
        """way: one of SERVED."""
        if way.startswith("goodspeed_1"):
            workers, numbers = self.nodes[:1], [list(range(len(texts)))]
        else:
            workers, turns = self.nodes, range(self.turns)
            numbers = [[(client + turn) % len(texts) for turn in turns] for client in range(len(self.nodes))]
        max_draft = 0 if way.endswith("no_speculation") else MAX_DRAFT
        wanted = [[self._wanted(texts[number], max_draft) for number in own] for own in numbers]
        _, served = serve_all(workers, wanted)
        everything = [one for own in served for one in own]
        drafted, accepted = self.num_drafted.setdefault(way, Counter()), self.num_accepted.setdefault(way, Counter())
        for one in everything:
            drafted.update({"all": one.num_drafted, **one.drafted})
            accepted.update({"all": one.num_accepted, **one.accepted})
        order = [number for own in numbers for number in own]
        return [Written(number, one.tokens) for number, one in zip(order, everything, strict=True)]

    def _wanted(self, text: Text, max_draft: int) -> Wanted:
        return Wanted(text.ids, self.num_tokens, self.temperature, text.seed, max_draft)
