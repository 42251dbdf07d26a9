"""A text becomes a message of Anthropic's API, whole or as events."""

import json
from collections.abc import Iterator
from typing import Any

from draft_node.http.answer.choices import call_id, usage_of
from draft_node.http.answer.items import Event, Itemised, new_id, server_event
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.errors import ApiError
from draft_node.http.schema.messages import MessagesRequest
from draft_node.parsing.formats import Call
from draft_node.service.output_processor import Ended
from goodspeed.serving.web.errors import messages_error

UNSIGNED = "unsigned"
"""Signature of all thinking: some clients drop thinking that has none."""


class MessageShape(Itemised):
    """One message; each block extends `body` and yields stream events."""

    between = server_event({"type": "ping"})

    def __init__(self, request: MessagesRequest, batch: Batch, model: str) -> None:
        body: dict[str, Any] = {
            "id": new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _begun_usage(batch.num_prompt_tokens),
        }
        super().__init__(batch, body)
        self._stops = request.stop_sequences or ()
        self._max_tokens = request.max_tokens

    def broken(self, error: ApiError) -> bytes:
        return server_event(messages_error(error.status, str(error), error.code))

    def begun(self) -> Iterator[Event]:
        yield {"type": "message_start", "message": self.body}

    def opened(self, *, is_thinking: bool) -> Iterator[Event]:
        thought, said = {"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}
        yield self._begin(thought if is_thinking else said)

    def grown(self, text: str) -> Iterator[Event]:
        block = self.body["content"][-1]
        kind = block["type"]
        block[kind] += text
        yield self._delta(kind, kind, text)

    def closed(self, *, is_cut: bool) -> Iterator[Event]:
        block = self.body["content"][-1]
        if block["type"] == "thinking":
            block["signature"] = UNSIGNED
            yield self._delta("signature", "signature", UNSIGNED)
        yield self._event("content_block_stop")

    def called(self, call: Call) -> Iterator[Event]:
        block = {"type": "tool_use", "id": call_id(self.batch.parser.formats.tools), "name": call.name, "input": {}}
        yield self._begin(block)
        yield self._delta("input_json", "partial_json", call.arguments)
        block["input"] = json.loads(call.arguments)
        yield self._event("content_block_stop")

    def ended(self, ended: Ended) -> Iterator[Event]:
        reason = self._reason(ended)
        delta = {"stop_reason": reason, "stop_sequence": ended.stop if reason == "stop_sequence" else None}
        self.body |= delta | {"usage": self._usage()}
        yield {"type": "message_delta", "delta": delta, "usage": self.body["usage"]}
        yield {"type": "message_stop"}

    def _reason(self, ended: Ended) -> str:
        """Returns the stop reason; the target's own stop strings are the end of its turn."""
        if ended.reason == "length":
            is_full = self.batch.texts[0].max_tokens < self._max_tokens
            return "model_context_window_exceeded" if is_full else "max_tokens"
        if any(block["type"] == "tool_use" for block in self.body["content"]):
            return "tool_use"
        return "stop_sequence" if ended.stop in self._stops else "end_turn"

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self.batch, self.choices)
        found = _begun_usage(usage["prompt_tokens"])
        found |= {"output_tokens": usage["completion_tokens"], "goodspeed": usage["goodspeed"]}
        num_thinking = usage.get("completion_tokens_details", {}).get("reasoning_tokens")
        return found if num_thinking is None else found | {"output_tokens_details": {"thinking_tokens": num_thinking}}

    def _begin(self, block: dict[str, Any]) -> Event:
        self.body["content"].append(block)
        return self._event("content_block_start", content_block=block)

    def _delta(self, kind: str, name: str, text: str) -> Event:
        return self._event("content_block_delta", delta={"type": f"{kind}_delta", name: text})

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "index": len(self.body["content"]) - 1, **fields}


def _begun_usage(num_prompt_tokens: int) -> dict[str, Any]:
    """Returns the usage before the first token: the whole prompt, also what the target's KV cache has."""
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": num_prompt_tokens, **cached, "output_tokens": 0}
