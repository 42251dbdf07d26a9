"""Simulates users of the draft nodes' HTTP API: each sends a prompt to one node and reads the streamed text.

Yields the same events that draft nodes print for prompts on standard input. HTTP carries no token ids, and the draft
sources only at the end.
"""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from httpx2 import AsyncClient, HTTPError, Response

from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.errors import ProcessError

UNTOLD: dict[str, Any] = {"token_ids": [], "drafted": {}, "accepted": {}}
"""Event fields that are unavailable over HTTP until a text ends."""


async def write(config: DemoConfig, client: Client, url: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the events of one text, from the first characters to the end. ProcessError if it breaks off."""
    started = time.monotonic()
    text = reason = ""
    try:
        async with aclosing(_chunks(url, _request(config, client))) as chunks:
            async for chunk in chunks:
                for choice in chunk["choices"]:
                    reason = choice["finish_reason"] or reason
                    text += choice["text"]
                    yield {"event": "tokens", "text": choice["text"], **UNTOLD}
                if usage := chunk.get("usage"):
                    yield _finish(text, reason, usage, time.monotonic() - started)
                    return
    except HTTPError as error:
        raise ProcessError(f"{client.name} broke off its answer over HTTP: {error!r}") from error
    raise ProcessError(f"{client.name} did not finish its answer over HTTP; run with --log-level info to see why")


def _request(config: DemoConfig, client: Client) -> dict[str, Any]:
    return {
        "prompt": client.prompt.text,
        "seed": client.seed,
        "max_tokens": config.max_tokens,
        "temperature": config.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"goodspeed": {"slo": client.tier}} if client.tier is not None else {}),
    }


async def _chunks(url: str, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Yields one completion's chunks. Needs no timeout: the connection breaks if the node ends."""
    async with (
        AsyncClient(timeout=None, trust_env=False) as http,
        http.stream("POST", f"{url}/v1/completions", json=request) as answer,
    ):
        if answer.status_code != 200:
            raise ProcessError(f"{url} refused a text: {await _refusal(answer)}")
        async for line in answer.aiter_lines():
            data = line.removeprefix("data: ")
            if data and data != "[DONE]":
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ProcessError(f"{url} broke off a text: {chunk['error']['message']}")
                yield chunk


async def _refusal(answer: Response) -> str:
    await answer.aread()
    return f"{answer.status_code} {answer.text}"


def _finish(text: str, reason: str, usage: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    speculation = usage["goodspeed"]
    return {
        "event": "finish",
        "text": text,
        "token_ids": [],
        "finish_reason": reason,
        "elapsed_s": elapsed_s,
        "num_tokens": usage["completion_tokens"],
        "num_rounds": speculation["rounds"],
        "num_drafted": speculation["drafted"],
        "num_accepted": speculation["accepted"],
        "drafted": speculation["drafted_by"],
        "accepted": speculation["accepted_by"],
        "slo": speculation.get("slo"),
    }
