"""A verify node and draft nodes in this process, on real loopback sockets, and what the target alone would write.

Drafts are made however fast this machine is: the verify node does not weigh time (`cost`) unless a test asks it to.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from draft_node.config import DraftConfig
from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.core.counts import Statistics
from draft_node.core.generation import Generation
from draft_node.process import assembly as draft_assembly
from draft_node.process import preflight as draft_preflight
from draft_node.process.daemon import DraftDaemon
from goodspeed.app.reference import generate
from goodspeed.embedded import prompts
from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.engine.torch.loading import start
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire.messages import LogitRules, Sampling, TokenLogprobs
from goodspeed.wire.zmq.opening_channels import bind_verify, connect_draft
from tests.memory_network import MemoryNetwork
from verify_node.config import VerifyConfig
from verify_node.process import assembly as verify_assembly
from verify_node.process import preflight as verify_preflight
from verify_node.process.daemon import VerifyDaemon

torch.set_num_threads(1)


@cache
def load(name: str) -> Checkpoint:
    return engines.load(name)


def prompt_ids(index: int) -> tuple[int, ...]:
    """Returns the prompt of one of the eight domains."""
    return tuple(encode_prompt(load("tiny-target").tokenizer, prompts.demo()[index % 8].prompt))


def make_request(prompt: Sequence[int], max_tokens: int = 32, **options: Any) -> Generation:
    sampling = {key: options.pop(key) for key in ("temperature", "top_k", "top_p", "seed") if key in options}
    options = {"stop_ids": load("tiny-target").eos_ids, **options}
    return Generation(secrets.token_bytes(16), tuple(prompt), Sampling(**sampling), max_tokens, **options)


@cache
def alone(
    prompt: tuple[int, ...], sampling: Sampling, max_tokens: int, rules: LogitRules | None = None
) -> tuple[int, ...]:
    """Returns the tokens that the target alone writes with that seed."""
    target = load("tiny-target")
    engine = start(target, num_pages=64)
    return tuple(generate(target, engine, list(prompt), sampling, max_tokens, target.eos_ids, rules=rules))


def verify_daemon(network: MemoryNetwork | None = None, /, **options: Any) -> VerifyDaemon:
    """A verify node that measures nothing, on real sockets or in a network."""
    options = {"bind": "tcp://127.0.0.1:0", **options}
    config, target = VerifyConfig(model="tiny-target", **options), load("tiny-target")
    welcome = verify_assembly.make_welcome(config, target)
    keys, enrolment = verify_preflight.read_keys(config)
    if network is None:
        channel = bind_verify(config.bind, max_message_bytes=welcome.max_message_bytes, keys=keys)
    else:
        channel = network.bind_verify()
    engine, events = verify_assembly.make_engine(config, target), EventLog(enabled=False)
    return verify_assembly.build(config, engine, channel, welcome, events, Refined(), enrolment)


def draft_daemon(**options: Any) -> DraftDaemon:
    config = DraftConfig(**options)
    channel = connect_draft(config.verify[0], keys=draft_preflight.read_keys(config))
    return draft_assembly.build(config, load(config.model), channel, secrets.token_bytes(8))


@dataclass
class Served:
    """The result that a user got."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    end: Finish | Fail | None = None
    statistics: Statistics = field(default_factory=Statistics)


@dataclass
class Cluster:
    """A verify node and draft nodes in one process; `serve` finishes all requests, and then stops the nodes."""

    verify_options: dict[str, Any]
    clients: dict[str, dict[str, Any]]  # name -> DraftConfig fields; `model` among them
    verify: VerifyDaemon = field(init=False)
    drafts: dict[str, DraftDaemon] = field(default_factory=dict)

    def serve(self, requests: dict[str, list[Generation]]) -> dict[str, list[Served]]:
        return asyncio.run(asyncio.wait_for(self._serve(requests), timeout=300))  # a wait in vain

    async def _serve(self, requests: dict[str, list[Generation]]) -> dict[str, list[Served]]:
        self._start()
        nodes: list[VerifyDaemon | DraftDaemon] = [self.verify, *self.drafts.values()]
        serving = [asyncio.create_task(node.serve()) for node in nodes]
        users: list[asyncio.Future[list[Served]]] = [
            asyncio.ensure_future(asyncio.gather(*(self.use(self.drafts[name], request) for request in wanted)))
            for name, wanted in requests.items()
        ]
        try:
            everybody = asyncio.gather(*users)
            ends: list[asyncio.Future[Any]] = [everybody, *serving]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for node in serving:
                assert not node.done(), node.exception()
            return {name: list(served) for name, served in zip(requests, await everybody, strict=True)}
        finally:
            running: list[asyncio.Future[Any]] = [*users, *serving]
            for future in running:
                future.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _start(self) -> None:
        self.verify = verify_daemon(**self.verify_options)
        verify = (self.verify.channel.endpoint,)
        self.drafts = {
            name: draft_daemon(name=name, verify=verify, **options) for name, options in self.clients.items()
        }

    @staticmethod
    async def use(daemon: DraftDaemon, request: Generation) -> Served:
        served = Served()
        async for item in daemon.generate(request):
            served.statistics = daemon.core.sessions[request.session_id].statistics
            if isinstance(item, Deliver):
                served.tokens += item.tokens
                served.logprobs += item.logprobs
            else:
                served.end = item
        return served
