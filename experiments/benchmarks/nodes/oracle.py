"""A verify node in this process, sessions at any context, and drafts made beforehand from the target's own words.

All sessions of a node go on with one text, with one seed: under the match rule the target alone says what each will be
given, so the drafts are known before a clock starts. A drafted token is the target's with a given probability, decided
by session and position alone. The target model, the core and the draft nodes' sessions are the real ones; there are no
draft models, no sockets and no waiting.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from draft_node.core.actions import Action, Propose, Proposed, Request, Send
from draft_node.core.session import Session
from goodspeed.app.generation import PREFILL_CHUNK, generate
from goodspeed.embedded import prompts
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire.codec import decode_down, decode_up, encode
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import DownMessage, Sampling, UpMessage, Verdict
from goodspeed.wire.zmq.transport import bind_verify
from verify_node import assembly
from verify_node.config import VerifyConfig
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


@dataclass
class Client:
    """One draft node with one session, whose draft model is the oracle."""

    number: int
    text: Text
    acceptance: float
    vocab_size: int
    fingerprint: str
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        session_id, num_new = self.number.to_bytes(16, "big"), len(self.text.continuation)
        self.session = Session(Request(session_id, self.text.prompt, SAMPLING, max_tokens=num_new))

    @property
    def peer_id(self) -> bytes:
        return b"p" + self.number.to_bytes(8, "big")

    def open(self, welcome: Welcome) -> list[bytes]:
        hello = Hello(VERSION, f"client-{self.number}", self.number.to_bytes(8, "big"), self.fingerprint)
        return [pack(hello), *self.send(self.session.connect(0.0, welcome))]

    def hear(self, data: bytes) -> list[Action]:
        """Handles a message from the verify node, as bytes, as a draft node does; returns its actions."""
        message = decode_down(data, MAX_BYTES)
        return self.session.receive(message, 0.0) if isinstance(message, Verdict) else []

    def send(self, actions: Iterable[Action]) -> list[bytes]:
        """Returns the messages to send, with a proposal made for every request."""
        sent: list[bytes] = []
        for action in actions:
            if isinstance(action, Send):
                sent.append(pack(action.message))
            elif isinstance(action, Propose) and action.length:
                sent += self.send(self.session.proposed(self._propose(action)))
        return sent

    def _propose(self, wanted: Propose) -> Proposed:
        base_len = len(self.session.tokens)
        tokens = self.text.draft(self.number, base_len, wanted.length, self.acceptance, self.vocab_size)
        return Proposed(wanted.request.session_id, wanted.epoch, wanted.round, tokens)


class Node:
    """The verify node: bytes in, rounds, bytes out."""

    def __init__(self, checkpoint: Checkpoint, num_sessions: int, context: int, budget: int) -> None:
        pages = (num_sessions + 1) * (-(-context // PAGE_SIZE) + 1)
        config = VerifyConfig(
            model=checkpoint.name,
            budget=budget,
            preset="paper",  # every round is to carry the same work
            max_round_tokens=2 * budget + num_sessions + 16,
            kv_pages=pages,
            heartbeat_s=60.0,  # nobody is taken for silent
        )
        welcome = assembly.make_welcome(config, checkpoint)
        channel = bind_verify("tcp://127.0.0.1:0")
        runner = assembly.make_runner(config, checkpoint)
        daemon = assembly.build(config, runner, channel, welcome, EventLog(enabled=False), Refined())
        channel.close()  # what clients say is given to the core by hand
        self.core, self.target = daemon.core, daemon.target

    def open(self, clients: list[Client]) -> None:
        """Opens all sessions with their prompts already cached, all but the last token, without the time of prefill."""
        runner, prompt = self.target.runner, clients[0].text.prompt
        source, num_cached = object(), len(prompt) - 1
        for start in range(0, num_cached, PREFILL_CHUNK):
            runner.forward([Chunk(source, prompt[start : min(start + PREFILL_CHUNK, num_cached)], 0)])
        for client in clients:
            for data in client.open(self.core.welcome):
                self.receive(client, data, 0.0)
            session = self.core.sessions[client.session.request.session_id]
            copy_cache(runner, source, session.session_id)
        runner.free(source)

    def receive(self, client: Client, data: bytes, now: float) -> None:
        for sent in self.core.receive(client.peer_id, decode_up(data, MAX_BYTES), now):
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


def page_bytes(runner: Runner) -> int:
    """Returns the bytes of one page over all layers."""
    return sum(pages[0].nbytes for pages in runner._packed.memory.pages)


def copy_cache(runner: Runner, source: object, target: bytes) -> None:
    """Copies the keys and values of `source` to `target`: prefilling every session anew would take minutes."""
    pool, memory = runner.pool, runner._packed.memory
    pool.extend(target, pool.length(source))
    for pages in memory.pages:
        pages[pool.table(target)] = pages[pool.table(source)]


def pack(message: UpMessage | DownMessage) -> bytes:
    return encode(message, MAX_BYTES)
