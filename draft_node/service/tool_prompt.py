"""Spells tools, calls and results as text in messages, for chat templates that know no tools. In Hermes' format."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

Turn = Mapping[str, Any]
"""A message for a chat template."""

ABOUT_TOOLS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""The wording of Qwen2.5's chat template, which many models were trained with."""


def with_tools_as_text(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], *, has_system: bool) -> list[Turn]:
    """Returns the conversation with the tools in its first message, and calls and results as text.

    has_system: the template takes a system message; else the first user message describes the tools. Results
    become a user message, together with what the user says after them: some templates want turns to alternate.
    """
    found = list(_without_results([_without_calls(turn) for turn in turns]))
    if not tools:
        return found
    about = ABOUT_TOOLS.format(tools="\n".join(map(_dumped, tools)))
    role = "system" if has_system else "user"
    at = next((i for i, turn in enumerate(found) if turn["role"] == role), None)
    if at is None or (has_system and at):  # a later system message is not the one that templates begin with
        return [{"role": role, "content": about}, *found]
    texts = (found[at]["content"], about) if has_system else (about, found[at]["content"])
    return [*found[:at], {**found[at], "content": _joined(*texts)}, *found[at + 1 :]]


def _without_calls(turn: Turn) -> Turn:
    if "tool_calls" not in turn:
        return turn
    calls = [call["function"] for call in turn["tool_calls"]]
    written = [
        f"<tool_call>\n{_dumped({name: call[name] for name in ('name', 'arguments')})}\n</tool_call>" for call in calls
    ]
    content = "\n".join([*([turn["content"]] if turn["content"] else []), *written])
    return {**{name: value for name, value in turn.items() if name != "tool_calls"}, "content": content}


def _without_results(turns: Sequence[Turn]) -> Iterator[Turn]:
    results = ""
    for role, run in groupby(turns, lambda turn: turn["role"]):
        if role == "tool":
            results = "\n".join(f"<tool_response>\n{turn['content']}\n</tool_response>" for turn in run)
            continue
        for turn in run:
            if results and role == "user":
                yield {**turn, "content": _joined(results, turn["content"])}
            else:
                yield from [{"role": "user", "content": results}] if results else []
                yield turn
            results = ""
    if results:
        yield {"role": "user", "content": results}


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
