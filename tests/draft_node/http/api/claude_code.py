"""Requests in the shape of Claude Code's, in our own words: many tools, long prompts, members of its betas."""

from typing import Any

BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": BETAS, "x-app": "cli", "User-Agent": "claude-cli"}
PATH = "/v1/messages?beta=true"

CACHE = {"type": "ephemeral", "ttl": "1h"}
ADVICE = "Prefer this tool to a shell command of the same effect. Give paths from the root, and quote what has blanks. "
REMINDER = "<system-reminder>\nThe list of things to do is empty. Do not say so to the user.\n</system-reminder>\n"


def tool(name: str, *required: str, num_chars: int = 400, **more: Any) -> dict[str, Any]:
    """A tool whose description has so many characters, and whose schema nests objects and lists."""
    properties: dict[str, Any] = {one: {"type": "string", "description": f"The {one} to use."} for one in required}
    properties["limit"] = {"type": "integer", "minimum": 1, "description": "The most lines to return."}
    properties["edits"] = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
            "required": ["old", "new"],
            "additionalProperties": False,
        },
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {
        "name": name,
        "description": (ADVICE * (num_chars // len(ADVICE) + 1))[:num_chars],
        "input_schema": schema,
    } | more


def tools(num_more: int = 20) -> list[dict[str, Any]]:
    """The agent's own tools, those of servers that it knows, and one that Anthropic runs."""
    return [
        tool("Bash", "command", num_chars=20_000, eager_input_streaming=True),
        tool("Read", "file_path", allowed_callers=["direct"]),
        tool("Edit", "file_path", input_examples=[{"file_path": "/a.py", "edits": []}]),
        tool("ToolSearch", "query", num_chars=12_000),
        *(tool(f"mcp__tracker__ask_{i}", "question", defer_loading=True) for i in range(num_more)),
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ]


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | more


def turn(number: int, *results: Any, reads: str = "/a.py") -> list[dict[str, Any]]:
    """The assistant's thought, words and call, and the result that the agent sends back."""
    call = {"type": "tool_use", "id": f"toolu_{number:04}", "name": "Read", "input": {"file_path": reads}}
    thought = {"type": "thinking", "thinking": "The file has it, I suppose.", "signature": "c2lnbmVk" * 8}
    result = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": list(results) or "1\tx = 1",
        "is_error": False,
    }
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


COUNTED = ("model", "system", "tools", "messages", "thinking", "output_config", "context_management", "mcp_servers")
"""Members that a request to count tokens has, too."""

IGNORED = (
    "allowed_callers betas cache_control context_management defer_loading display eager_input_streaming inference_geo "
    "input_examples metadata speed task_budget web_search_20250305"
)
