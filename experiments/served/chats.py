"""Chats by domain, as requests to draft nodes."""

import random
from pathlib import Path

from experiments.benchmarks.nodes.workers import Wanted
from goodspeed.engine.model_files.finding import load_tokenizer
from goodspeed.errors import ConfigError
from training.chats import MAX_PROMPT, Chat, encoded

FOLDER = Path(__file__).parents[1] / "prompts"
SEEDS_APART = 1_000_003


class Requests:
    """Asks for chats of each client's domain, one after the other, in an order of each seed."""

    def __init__(self, chats: dict[str, list[Chat]], target: str, temperature: float, max_tokens: int) -> None:
        """Raises ConfigError for a domain whose prompts are all too long."""
        vocabulary = load_tokenizer(target)
        self._ends = list(vocabulary.eos_ids)
        self._temperature, self._max_tokens = temperature, max_tokens
        self._prompts: list[list[list[int]]] = []  # of each client
        for domain, own in chats.items():
            fitting = encoded(own, vocabulary.tokenizer)
            if not fitting:
                raise ConfigError(f"every prompt of {domain} has more than {MAX_PROMPT} tokens; add shorter ones")
            self._prompts.append(fitting)

    def of(self, seed: int, number: int) -> list[list[Wanted]]:
        """Returns so many texts for each client; no two have the same prompt and the same seed."""
        return [self._own(prompts, client, seed, number) for client, prompts in enumerate(self._prompts)]

    def _own(self, prompts: list[list[int]], client: int, seed: int, number: int) -> list[Wanted]:
        order = random.Random(f"{seed} {client}").sample(prompts, len(prompts))
        first = SEEDS_APART * seed
        return [
            Wanted(order[place % len(order)], self._max_tokens, self._temperature, first + place, stop_ids=self._ends)
            for place in range(number)
        ]
