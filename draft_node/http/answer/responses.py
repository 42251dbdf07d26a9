"""A text becomes a response of OpenAI's Responses API, whole or as events."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from draft_node.core.generation import Generation
from draft_node.http.answer.choices import call_id, system_fingerprint_of, usage_of
from draft_node.http.answer.items import Event, Itemised, new_id, server_event
from draft_node.http.answer.shape import BYTES, now
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.errors import ApiError
from draft_node.http.schema.response_tools import FunctionTool, as_input
from draft_node.http.schema.responses import ResponsesRequest
from draft_node.parsing.formats import Call
from draft_node.service.output_processor import Ended

FAILURES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""OpenAI's codes of a failed response by status; `server_error` for the others."""

Item = dict[str, Any]


class ResponseShape(Itemised):
    """One response; each item extends `body` and yields stream events."""

    def __init__(self, request: ResponsesRequest, batch: Batch, model: str) -> None:
        super().__init__(batch, _begun_body(request, batch.texts[0], model))
        self.num_repeated = len(to_json(self.body)) // BYTES
        self._toolbox = request.toolbox
        self._numbers = count()

    def broken(self, error: ApiError) -> bytes:
        begun = [server_event(event) for event in self.begin()]
        failure = {"code": FAILURES.get(error.status, "server_error"), "message": str(error)}
        self.body |= {"status": "failed", "error": failure}
        return b"".join([*begun, server_event(self._of_body("response.failed"))])

    def begun(self) -> Iterator[Event]:
        yield self._of_body("response.created")
        yield self._of_body("response.in_progress")

    def ended(self, ended: Ended) -> Iterator[Event]:
        is_cut = ended.reason == "length"
        self.body |= {
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "completed_at": None if is_cut else now(),
            "usage": self._usage(),
            "system_fingerprint": system_fingerprint_of(self.batch, self.choices),
        }
        yield self._of_body(f"response.{self.body['status']}")

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self.batch, self.choices)
        num_reasoning = usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0)
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": num_reasoning},
            "total_tokens": usage["total_tokens"],
            "goodspeed": usage["goodspeed"],
        }

    def called(self, call: Call) -> Iterator[Event]:
        tool, made_id = self._toolbox.called(call.name), call_id(self.batch.parser.formats.tools)
        named = {"call_id": made_id, "name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}
        match tool.kind:
            case "function":
                item = _item("function_call", "fc", **named, arguments="")
                yield from self._call(item, "function_call_arguments", "arguments", call.arguments, name=tool.name)
            case "custom":
                item = _item("custom_tool_call", "ctc", **named, input="")
                yield from self._call(item, "custom_tool_call_input", "input", as_input(call.arguments))
            case "tool_search":
                found = {"call_id": made_id, "execution": "client", "arguments": json.loads(call.arguments)}
                item = _item("tool_search_call", "tsc", **found)
                yield self._add(item)
                yield self._done(item)

    def _call(self, item: Item, kind: str, member: str, text: str, **also: str) -> Iterator[Event]:
        """Adds a call whose `member` is this text. also: further members of the event at its end."""
        yield self._add(item)
        item[member] = text
        yield self._of_item(f"response.{kind}.delta", item, delta=text)
        yield self._of_item(f"response.{kind}.done", item, **also, **{member: text})
        yield self._done(item)

    def opened(self, *, is_thinking: bool) -> Iterator[Event]:
        thought = _item("reasoning", "rs", summary=[], content=[], encrypted_content=None)
        said = _item("message", "msg", role="assistant", content=[])
        item = thought if is_thinking else said
        yield self._add(item)
        of_message = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item["content"].append({"type": "reasoning_text", "text": ""} if is_thinking else of_message)
        yield self._of_part("response.content_part.added", item, part=item["content"][0])

    def grown(self, text: str) -> Iterator[Event]:
        item = self.body["output"][-1]
        item["content"][0]["text"] += text
        yield self._text_event("delta", item, delta=text)

    def closed(self, *, is_cut: bool) -> Iterator[Event]:
        item = self.body["output"][-1]
        yield self._text_event("done", item, text=item["content"][0]["text"])
        yield self._of_part("response.content_part.done", item, part=item["content"][0])
        yield self._done(item, is_cut=is_cut)

    def _text_event(self, kind: str, item: Item, **fields: Any) -> Event:
        """Returns a text event; messages get an empty list of log-probabilities, which are not supported here."""
        if item["type"] == "message":
            fields["logprobs"] = []
        return self._of_part(f"response.{item['content'][0]['type']}.{kind}", item, **fields)

    def _add(self, item: Item) -> Event:
        self.body["output"].append(item)
        return self._event("response.output_item.added", output_index=len(self.body["output"]) - 1, item=item)

    def _done(self, item: Item, *, is_cut: bool = False) -> Event:
        item["status"] = "incomplete" if is_cut else "completed"
        return self._event("response.output_item.done", output_index=len(self.body["output"]) - 1, item=item)

    def _of_part(self, name: str, item: Item, /, **fields: Any) -> Event:
        return self._of_item(name, item, content_index=0, **fields)

    def _of_item(self, name: str, item: Item, /, **fields: Any) -> Event:
        return self._event(name, item_id=item["id"], output_index=len(self.body["output"]) - 1, **fields)

    def _of_body(self, name: str) -> Event:
        return self._event(name, response=self.body)

    def _event(self, kind: str, /, **fields: Any) -> Event:
        return {"type": kind, "sequence_number": next(self._numbers), **fields}


def _item(kind: str, prefix: str, **members: Any) -> Item:
    return {"type": kind, "id": new_id(prefix), "status": "in_progress", **members}


def _begun_body(request: ResponsesRequest, generation: Generation, model: str) -> dict[str, Any]:
    """Returns a response without output, with the parameters of request and sampling."""
    choice, form = request.tool_choice, request.text.format if request.text is not None else None
    described = form.model_dump(by_alias=True, exclude_none=True) if form is not None else {"type": "text"}
    empty = ("completed_at", "error", "incomplete_details", "usage", "system_fingerprint")
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": now(),
        "status": "in_progress",
        **dict.fromkeys(empty),
        "model": model,
        "output": [],
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "temperature": generation.sampling.temperature,
        "top_p": generation.sampling.top_p,
        "tools": [tool.model_dump(exclude_unset=not isinstance(tool, FunctionTool)) for tool in request.tools or ()],
        "tool_choice": choice.model_dump(exclude_unset=True) if isinstance(choice, BaseModel) else choice or "auto",
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "text": {"format": described, "verbosity": "medium"},
        "reasoning": {"effort": request.reasoning.effort if request.reasoning is not None else None, "summary": None},
        "truncation": "disabled",
        "store": False,
        "background": False,
        "previous_response_id": None,
        "service_tier": request.service_tier,
        "metadata": request.metadata or {},
        "user": request.user,
    }
