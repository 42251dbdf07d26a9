"""A verify node in this process, sessions at any context, and drafts made beforehand from the target's own words.

All sessions of a node go on with one text, with one seed: under the match rule the target alone says what each will be
given, so the drafts are known before a clock starts. A drafted token is the target's with a given probability, decided
by session and position alone. There are no draft models, no sockets and no waiting.
"""

import random
from dataclasses import dataclass

from draft_node.core.generation import Generation
from experiments.benchmarks.nodes.played import Client, make_daemon
from goodspeed.app.generation import PREFILL_CHUNK, generate
from goodspeed.drafting.proposing import Propose
from goodspeed.embedded import prompts
from goodspeed.engine import engines
from goodspeed.engine.engine import Checkpoint, Engine
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.wire.codec import decode_up, encode
from goodspeed.wire.messages import DownMessage, Sampling, UpMessage
from verify_node.model.target import RoundResult
from verify_node.scheduler.round import Round

SAMPLING = Sampling(seed=1)
MAX_BYTES = 1 << 24
PAGE_SIZE = 16


@dataclass(frozen=True)
class Text:
    """Token ids: a prompt of held-out text, repeated to its length, and how the target alone goes on."""

    prompt: tuple[int, ...]
    continuation: tuple[int, ...]

    @classmethod
    def write(cls, checkpoint: Checkpoint, context: int, num_new: int) -> "Text":
        """Prompt and continuation are `context` tokens together."""
        corpus = encode_prompt(checkpoint.tokenizer, "\n\n".join(line.prompt for line in prompts.load()))
        prompt = (corpus * (context // len(corpus) + 1))[: context - num_new]
        runner = Runner(checkpoint, num_pages=-(-context // PAGE_SIZE), page_size=PAGE_SIZE)
        return cls(tuple(prompt), tuple(generate(checkpoint, runner, prompt, SAMPLING, num_new)))

    def draft(self, number: int, base_len: int, length: int, acceptance: float, vocab_size: int) -> tuple[int, ...]:
        """Returns the draft of session `number` at base_len; each token is wrong with probability 1 - acceptance."""
        first = base_len - len(self.prompt)
        right = self.continuation[first : first + length]
        return tuple(
            token if random.Random(f"{number} {base_len + i}").random() < acceptance else (token + 1) % vocab_size
            for i, token in enumerate(right)
        )


def clients(checkpoint: Checkpoint, text: Text, acceptance: float, num_clients: int) -> list[Client]:
    """Creates clients whose draft model is the oracle."""
    made = []
    for number in range(num_clients):

        def draft(wanted: Propose, number: int = number) -> tuple[int, ...]:
            return text.draft(number, len(wanted.tokens), wanted.length, acceptance, checkpoint.num_tokens)

        request = Generation(number.to_bytes(16, "big"), text.prompt, SAMPLING, max_tokens=len(text.continuation))
        made.append(Client.of(f"client-{number}", number, checkpoint.tokenizer_fingerprint, request, draft))
    return made


class Node:
    """The verify node: bytes in, rounds, bytes out."""

    def __init__(self, checkpoint: Checkpoint, num_sessions: int, context: int, budget: int) -> None:
        pages = (num_sessions + 1) * (-(-context // PAGE_SIZE) + 1)
        daemon = make_daemon(checkpoint, budget, pages, max_round_tokens=2 * budget + num_sessions + 16)
        daemon.channel.close()  # what clients say is given to the core by hand
        self.core, self.target = daemon.core, daemon.target

    def open(self, clients: list[Client]) -> None:
        """Opens all sessions with their prompts already cached, all but the last token, without the time of prefill."""
        runner, prompt = self.target.runner, clients[0].session.request.prompt
        source, num_cached = object(), len(prompt) - 1
        for start in range(0, num_cached, PREFILL_CHUNK):
            runner.forward([Chunk(source, prompt[start : min(start + PREFILL_CHUNK, num_cached)], 0)])
        for client in clients:
            for message in client.greet(self.core.welcome):
                self.receive(client, pack(message), 0.0)
            session = self.core.sessions[client.session.request.session_id]
            copy_cache(runner, source, session.session_id)
        runner.free(source)

    def receive(self, client: Client, data: bytes, now: float) -> None:
        for sent in self.core.receive(client.hello.boot_id, decode_up(data, MAX_BYTES), now):
            if not isinstance(sent.message, type(self.core.welcome)):
                raise RuntimeError(f"a message was not taken: {sent.message}")

    def plan(self, now: float) -> Round:
        planned = self.core.plan(now)
        if planned is None:
            raise RuntimeError("nobody is ready: a client owes a draft")
        return planned

    def finish(self, result: RoundResult, now: float) -> list[tuple[bytes, bytes]]:
        """Finishes a round; returns its verdicts as (peer, bytes)."""
        duration_s = result.forward_s + result.verify_s
        return [(sent.peer_id, pack(sent.message)) for sent in self.core.finish(result.outcomes, duration_s, now)]


def page_bytes(runner: Engine) -> int:
    """Returns the bytes of one page over all layers."""
    return engines.token_bytes(runner.checkpoint) * runner.pool.page_size


def copy_cache(runner: Engine, source: object, target: bytes) -> None:
    """Copies the keys and values of `source` to `target`: prefilling every session anew would take minutes."""
    assert isinstance(runner, Runner)
    pool, memory = runner.pool, runner._packed.memory
    pool.extend(target, pool.length(source))
    for pages in memory.pages:
        pages[pool.table(target)] = pages[pool.table(source)]


def pack(message: UpMessage | DownMessage) -> bytes:
    return encode(message, MAX_BYTES)
