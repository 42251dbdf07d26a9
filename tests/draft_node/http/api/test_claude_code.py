"""Whole requests in the shape of Claude Code's, in our own words: many tools, long prompts, members of its betas."""

import difflib
import json
from collections import Counter
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from draft_node.http.ask.body import MAX_BODY_BYTES
from tests.chats import PLAIN
from tests.draft_node.http.fake import Api, anthropics, ignored_of, named_events_of
from tests.draft_node.http.speaking import speaking

BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": BETAS, "x-app": "cli", "User-Agent": "claude-cli"}
PATH = "/v1/messages?beta=true"

CACHE = {"type": "ephemeral", "ttl": "1h"}
ADVICE = "Prefer this tool to a shell command of the same effect. Give paths from the root, and quote what has blanks. "
REMINDER = "<system-reminder>\nThe list of things to do is empty. Do not say so to the user.\n</system-reminder>\n"
COUNTED = ("model", "system", "tools", "messages", "thinking", "output_config", "context_management", "mcp_servers")
"""Members that a request to count tokens has, too."""

IGNORED = (
    "allowed_callers betas cache_control context_management defer_loading display eager_input_streaming inference_geo "
    "input_examples metadata speed task_budget web_search_20250305"
)
READ = '<tool_call>\n{"name": "Read", "arguments": {"file_path": "/a"}}\n</tool_call>'
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA" * 100}}


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
NOTE = {
    "type": "document",
    "title": "Notes",
    "source": {"type": "text", "media_type": "text/plain", "data": "It rains."},
}


def schema_of(*required: str, **others: Any) -> dict[str, Any]:
    """An object with texts that are required, and other properties."""
    texts = {one: {"type": "string", "description": f"The {one} to use."} for one in required}
    return {"type": "object", "properties": texts | others, "required": [*required], "additionalProperties": False}


def tool(name: str, *required: str, num_chars: int = 400, **more: Any) -> dict[str, Any]:
    """A tool whose description has so many characters, and whose schema nests objects and lists."""
    limit = {"type": "integer", "minimum": 1, "description": "The most lines to return."}
    schema = schema_of(*required, limit=limit, edits={"type": "array", "items": schema_of("old", "new")})
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    description = (ADVICE * (num_chars // len(ADVICE) + 1))[:num_chars]
    return {"name": name, "description": description, "input_schema": schema, **more}


def tools() -> list[dict[str, Any]]:
    """The agent's own tools, those of servers that it knows, and one that Anthropic runs."""
    return [
        tool("Bash", "command", num_chars=20_000, eager_input_streaming=True),
        tool("Read", "file_path", allowed_callers=["direct"]),
        tool("Edit", "file_path", input_examples=[{"file_path": "/a.py", "edits": []}]),
        tool("ToolSearch", "query", num_chars=12_000),
        *(tool(f"mcp__tracker__ask_{i}", "question", defer_loading=True) for i in range(20)),
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ]


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | more


def turn(number: int, *results: Any, reads: str = "/a.py") -> list[dict[str, Any]]:
    """The assistant's thought, words and call, and the result that the agent sends back."""
    call = {"type": "tool_use", "id": f"toolu_{number:04}", "name": "Read", "input": {"file_path": reads}}
    thought = {"type": "thinking", "thinking": "The file has it, I suppose.", "signature": "c2lnbmVk" * 8}
    content = list(results) or "1\tx = 1"
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": content, "is_error": False}
    return [
        {"role": "assistant", "content": [thought, text("I read it."), call]},
        {"role": "user", "content": [result, text(REMINDER)]},
    ]


def session(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A whole request, of the user's first message and what came after it."""
    system = ["You help with code in a terminal.", ADVICE * 40, "Environment: Linux, a git repository, no changes."]
    first = {"role": "user", "content": [text(REMINDER), text("Why does the test fail?", cache_control=CACHE)]}
    return {
        "model": "goodspeed",
        "max_tokens": 32_000,
        "stream": True,
        "temperature": 1,
        "system": [text(said, cache_control=CACHE) for said in system],
        "tools": tools(),
        "messages": [first, *turns],
        "metadata": {"user_id": "user_0_account__session_1"},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high", "task_budget": {"type": "tokens", "total": 100_000}},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "speed": "fast",
        "inference_geo": "eu",
        "service_tier": "auto",
        "container": None,
        "mcp_servers": [],
        "betas": BETAS.split(","),
    } | more


def node(says: str = f"<think>\nHm.\n</think>\n\nI look.\n{READ}", **options: Any) -> Api:
    api = speaking(says, num_at_once=5, **options)
    api.service.context_len, api.service.max_chars = 1 << 22, 1 << 24
    return api


def ask(api: Api, body: dict[str, Any], path: str = PATH, headers: dict[str, str] = HEADERS) -> Any:
    answer = api.client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


def prompt_of(*turns: dict[str, Any], **more: Any) -> tuple[str, set[str]]:
    """Returns the prompt that the model gets for a session, and the names of what it does not get."""
    api = node()
    answer = ask(api, session(*turns, **more))
    return api.prompt, set(ignored_of(answer))


def test_the_first_turn() -> None:
    api = node()
    answer = ask(api, session())
    events = named_events_of(answer)
    begun = [each["content_block"]["type"] for each in events if each["type"] == "content_block_start"]
    assert begun == ["thinking", "text", "tool_use"]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert set(ignored_of(answer)) == set(IGNORED.split())
    assert "mcp__tracker__ask_19" in api.prompt
    assert "web_search" not in api.prompt
    assert api.prompt.count(ADVICE) > 100
    assert api.prompt.endswith("Why does the test fail?<|im_end|>\n<|im_start|>assistant\n")


def test_its_tokens_are_counted() -> None:
    api, body = node(), session()
    counted = ask(api, {name: body[name] for name in COUNTED}, "/v1/messages/count_tokens?beta=true")
    asked = named_events_of(ask(api, body))
    assert counted.json() == {"input_tokens": asked[0]["message"]["usage"]["input_tokens"]}
    assert set(ignored_of(counted)) == set(IGNORED.split()) - {"betas", "inference_geo", "metadata", "speed"}


def test_a_turn_after_tools() -> None:
    prompt, _ = prompt_of(*turn(1), *turn(2, text("2\ty = 2"), IMAGE, reads="/b.py"))
    assert "<tool_response>\n1\tx = 1\n</tool_response>" in prompt
    assert "<tool_response>\n2\ty = 2\n[an image that this model cannot read]\n</tool_response>" in prompt
    assert '{"file_path": "/b.py"}' in prompt


def test_what_other_models_and_their_service_did_is_left_out() -> None:
    """A session that was begun elsewhere goes on here."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
    found = {"type": "web_search_result", "title": "Rain", "url": "https://example.org", "encrypted_content": "eA=="}
    searched = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]}
    said = text("It rains.", citations=[{"type": "web_search_result_location", "url": "https://example.org"}])
    hidden = {"type": "redacted_thinking", "data": "eA=="}
    reference = {"type": "tool_reference", "tool_name": "mcp__tracker__ask_3"}
    answer = {"role": "assistant", "content": [hidden, use, searched, said]}
    prompt, names = prompt_of(answer, {"role": "user", "content": "Well?"}, *turn(1, reference))
    assert "<|im_start|>assistant\nIt rains.<|im_end|>" in prompt
    assert "<tool_response>\n[the tool mcp__tracker__ask_3]\n" in prompt
    assert names >= {"redacted_thinking", "server_tool_use", "web_search_tool_result", "citations", "tool_reference"}


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_tools_that_a_later_message_adds_or_removes_are_there_from_the_beginning(role: str) -> None:
    changed = (("tool_addition", "Read"), ("tool_removal", "Edit"))
    changes = [{"type": kind, "tool": {"type": "tool_reference", "name": name}} for kind, name in changed]
    changes += [{"type": "redacted_thinking", "data": "eA=="}]
    later = {"role": role, "content": changes, "clear_at": "next_user_message", "output_config": {"effort": "low"}}
    prompt, names = prompt_of(*turn(1), later, {"role": "user", "content": "Well?"})
    for name in ("Read", "Edit"):
        assert prompt.count(f'"name": "{name}"') == 1 + (name == "Read")  # the call has it, too
    assert names >= {"tool_addition", "tool_removal", "redacted_thinking", "clear_at", "output_config"}


def test_a_summary_is_what_the_assistant_said() -> None:
    summary = {"type": "compaction", "content": "It was about rain.", "encrypted_content": "eA==", "signature": "eA=="}
    prompt, _ = prompt_of({"role": "assistant", "content": [summary]}, {"role": "user", "content": "Well?"})
    assert "<|im_start|>assistant\nIt was about rain.<|im_end|>" in prompt


def test_what_a_user_shows_is_text_or_a_sentence() -> None:
    found = {"type": "search_result", "source": "notes.md", "title": "Rain", "content": [text("Much.")]}
    blocks = {"type": "document", "source": {"type": "content", "content": [text("Two"), text("words")]}}
    prompt, names = prompt_of({"role": "user", "content": [NOTE, text(""), found, PDF, blocks, IMAGE]})
    said = "Notes\nIt rains.\nRain\nnotes.md\nMuch.\n[a file that this model cannot read]\nTwo\nwords\n[an image that"
    assert said in prompt
    assert names >= {"document", "image"}


def test_a_long_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 calls and results in 3 MB, of which no prompt is made."""
    api = node("Done.")
    monkeypatch.setattr(api.service, "encode_chat", encode := AsyncMock(return_value=(65,)))
    turns = [each for i in range(4000) for each in turn(i, text("x = 1\n" * 20), text("y"), reads=f"/{i}.py")]
    body = session(*turns, stream=False)
    assert 3_000_000 < len(json.dumps(body)) < MAX_BODY_BYTES
    assert [block["text"] for block in ask(api, body).json()["content"]] == ["Done."]
    assert Counter(message["role"] for message in encode.call_args.args[0]) == {
        "system": 1,
        "user": 4001,
        "assistant": 4000,
        "tool": 4000,
    }


def test_a_model_that_knows_no_tools_no_thinking_and_no_effort() -> None:
    api = node("Hello.", template=PLAIN)
    answer = ask(api, session(stream=False) | {"tools": []})
    assert set(ignored_of(answer)) >= {"thinking", "effort"}
    assert answer.json()["content"] == [{"type": "text", "text": "Hello."}]


@pytest.mark.clients
@pytest.mark.parametrize("stream", [False, True])
def test_by_the_official_client(stream: bool) -> None:
    client = anthropics(node())
    body = session(*turn(1)) | {"max_tokens": 1000}
    del body["stream"], body["temperature"]  # the client has neither of them
    if stream:
        with client.beta.messages.stream(**body) as events:
            message = events.get_final_message()
    else:
        message = client.beta.messages.create(**body)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    counted = {name: body[name] for name in COUNTED} | {"betas": body["betas"]}
    assert client.beta.messages.count_tokens(**counted).input_tokens == message.usage.input_tokens


# -- betas that are not known yet --------------------------------------------------------------------------------------


def test_what_a_beta_announces_is_ignored_by_name() -> None:
    _, names = prompt_of(swift_answers={"mode": "on"}, tools=[tool("Read", "x", hushed=True)])
    assert names >= {"swift_answers", "hushed"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_token": 5}, "max_token is not a supported parameter; did you mean max_tokens?"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is not a supported parameter; let the client"),
        ({"odd\r\nname": 1}, "odd\r\nname is not a supported parameter; leave it out"),
        ({f"x{i}": 1 for i in range(100)}, "x"),
    ],
)
def test_but_not_what_is_misspelt_or_cannot_be_served(more: dict[str, Any], message: str) -> None:
    answer = node().client.post(PATH, json=session(**more), headers=HEADERS)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)
    assert len(answer.headers["X-GoodSpeed-Ignored"]) < 4096


def test_a_name_is_compared_with_known_ones_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same one is in thousands of blocks."""
    monkeypatch.setattr(difflib, "get_close_matches", compared := Mock(wraps=difflib.get_close_matches))
    blocks = [{"type": "text", "text": "x", "compared_once": 1}] * 50
    _, names = prompt_of(messages=[{"role": "user", "content": blocks}])
    assert "compared_once" in names
    assert [call.args[0] for call in compared.call_args_list] == ["compared_once"]


def test_without_a_beta_an_unknown_member_is_refused() -> None:
    for headers in ({}, {"anthropic-beta": ""}):
        answer = node().client.post(PATH, json=session(swift_answers=1), headers=headers)
        assert answer.json()["error"]["message"] == "swift_answers is not a supported parameter; leave it out"
