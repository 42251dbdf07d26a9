"""With settings of its makers, a target's text is the same with --prompts, through the service, and alone."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from draft_node.config import DraftConfig
from draft_node.core.generation import Generation
from draft_node.http.ask.body import LargeWork
from draft_node.http.ask.caller import Caller
from draft_node.http.ask.generation import of_chat, of_completion
from draft_node.http.schema.chat import ChatRequest, CompletionRequest
from draft_node.process import assembly as draft_assembly
from draft_node.service.answer import Piece
from draft_node.service.batch import Batch
from draft_node.service.service import Service
from goodspeed.app.generate import GenerateConfig, generate, ignore
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.tokenizing.generation_settings import GenerationSettings, TextDefaults
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.serving.prompts import Prompt
from tests.memory_network import MemoryNetwork
from tests.together.cluster.cluster import load
from verify_node.config import VerifyConfig
from verify_node.process import assembly as verify_assembly

ASKED = [
    Prompt(text, seed=seed)
    for seed, text in enumerate(("How do I make soup?", "What is the capital of France?", "Hello", "Write a poem"))
]
MAX_TOKENS = 48


def target() -> Checkpoint:
    """A target with defaults of its own for all texts, and the embedded stop string for chats."""
    own, found = load("tiny-target"), TextDefaults(0.7, 20, stop=(" the", "e\n"), repetition_penalty=1.2, min_p=0.01)
    return replace(own, settings=GenerationSettings(found, replace(found, stop=own.settings.chats.stop)))


async def _serve(chat: bool, options: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns what is told of every prompt of a file, and the texts of the service."""
    network, boot_id = MemoryNetwork(), secrets.token_bytes(8)
    verify_config, checkpoint = VerifyConfig(model="tiny-target", kv_pages=256), target()
    welcome = verify_assembly.make_welcome(verify_config, checkpoint)
    runner = verify_assembly.make_runner(verify_config, checkpoint)
    verify = verify_assembly.build(
        verify_config, runner, network.bind_verify(), welcome, EventLog(enabled=False), Refined()
    )
    config = DraftConfig(model="tiny-draft-s", name="edge", max_tokens=MAX_TOKENS, **options)
    draft = load("tiny-draft-s")
    daemon = draft_assembly.build(config, draft, network.connect_draft(boot_id), boot_id)
    batch = Batch(config, draft, daemon, EventLog(enabled=False), ASKED)
    serving = [asyncio.create_task(node.serve()) for node in (daemon, verify)]
    try:
        await (daemon.connected.wait() if chat else batch.run())  # a file has no chats
        service = Service(daemon, draft, max_waiting=8)
        generations = [await _generation(prompt, service, chat, options) for prompt in ASKED]
        texts = await asyncio.gather(*(_text(service, one) for one in generations))
        return sorted(batch.results, key=lambda row: row["index"]), texts
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _generation(prompt: Prompt, service: Service, chat: bool, options: dict[str, Any]) -> Generation:
    config = DraftConfig(model="tiny-draft-s", http="127.0.0.1:0")
    caller = Caller(service, config, "user", {}, 0, LargeWork().bodies)
    asked: dict[str, Any] = {"max_tokens": MAX_TOKENS, "seed": prompt.seed, **options}
    if chat:
        asked["messages"] = [{"role": "user", "content": prompt.text}]
        return (await of_chat(ChatRequest(**asked), caller)).texts[0]
    asked["prompt"] = prompt.text
    return (await of_completion(CompletionRequest(**asked), caller)).texts[0]


async def _text(service: Service, generation: Generation) -> str:
    async with aclosing(service.write(generation)) as items:
        return "".join([item.text async for item in items if isinstance(item, Piece)])


def _alone(chat: bool, options: dict[str, Any]) -> Sequence[dict[str, Any]]:
    configs = [
        GenerateConfig(prompt=prompt.text, seed=prompt.seed or 0, chat=chat, max_tokens=MAX_TOKENS, **options)
        for prompt in ASKED
    ]
    return [generate(config, target(), ignore) for config in configs]


@pytest.mark.thorough
@pytest.mark.parametrize(("chat", "options"), [(False, {}), (True, {"temperature": 1.0})])
def test_one_text_whoever_is_asked(chat: bool, options: dict[str, Any]) -> None:
    rows, texts = asyncio.run(asyncio.wait_for(_serve(chat, options), timeout=120))  # a wait in vain
    alone = _alone(chat, options)
    told = ("text", "token_ids", "num_tokens", "finish_reason")
    expected = [{key: row[key] for key in told} for row in alone]
    assert [{key: row[key] for key in told} for row in rows] == ([] if chat else expected)
    assert texts == [row["text"] for row in alone]
    assert "stop" in [row["finish_reason"] for row in alone]
    tokenizer, stops = load("tiny-target").tokenizer, target().settings.chats.stop if chat else (" the", "e\n")
    for row in alone:
        written = tokenizer.decode(row["token_ids"])
        assert not any(stop in row["text"] for stop in stops)
        assert written.lstrip().startswith(row["text"]) if chat else written.startswith(row["text"])
        assert not chat or row["text"] == row["text"].lstrip()
