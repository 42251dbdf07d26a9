"""Detects the features that a tokenizer's chat template supports, and how to parse its chats."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

from draft_node.parsing.formats import AUTO, NO_FORMATS, TOOLS, Formats, formats_of
from draft_node.parsing.grammars import ReasoningState
from draft_node.parsing.parser import ParserSettings
from draft_node.parsing.tool_parsers import depth
from goodspeed.engine.tokenizing import chat_template
from goodspeed.engine.tokenizing.chat_template import RESERVED, SPECIAL, variables
from goodspeed.engine.tokenizing.text import Inputs, end_of
from goodspeed.errors import ConfigError

MAX_SETTINGS, MAX_SETTINGS_CHARS, MAX_DEPTH = 16, 1 << 14, 8
"""Bounds of `chat_template_kwargs`: members, characters of JSON, and nesting depth."""

FALLBACK = "hermes"
"""Format of calls where the chat template knows no tools."""

SWITCHES = ("enable_thinking", "thinking")
"""Template variables that switch reasoning on and off: of Qwen3, SmolLM3 and GLM; of Granite and DeepSeek."""

System: TypeAlias = Literal["any", "first", "none"]

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

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, kw_only=True)
class ChatSupport:
    """A node's chat templates and formats; without a template, no formats."""

    tokenizer: Any = field(default=None, repr=False)
    plain: str | None = None  # the template for conversations without tools
    tooled: str | None = None  # for conversations with tools; usually the same
    formats: Formats = NO_FORMATS
    special: Mapping[str, int] = field(default_factory=dict)  # ids of special tokens by text
    markers: Mapping[str, int] = field(default_factory=dict)  # ids of the markers that are tokens, by text
    settings: Mapping[str, Any] = field(default_factory=dict)  # template variables, unless a request sets them
    system: System = "any"  # which system messages the template shows
    alternates: bool = False  # the template refuses two messages of a user in a row
    results_end: bool = False  # and a user's message after a tool's result

    @classmethod
    def of(
        cls, tokenizer: Any, *, tools: str = AUTO, thinking: str = AUTO, settings: Mapping[str, Any] | None = None
    ) -> "ChatSupport":
        """Reads what the tokenizer's chat template knows.

        tools, thinking: name of a format, `auto` or `none`. settings: variables for the template.
        Raises ConfigError for settings that are invalid, or unknown to the template.
        """
        templates = getattr(tokenizer, "chat_template", None)
        plain, tooled = (chat_template.for_tools(templates, tools=one) for one in (False, True))
        if tools == AUTO and tooled and "tools" not in variables(tooled):
            tools = FALLBACK
        formats = Formats(formats_of(plain, thinking=thinking).thinking, formats_of(tooled, tools=tools).tools)
        added = tokenizer.added_tokens_decoder
        found = cls(
            tokenizer=tokenizer,
            plain=plain,
            tooled=tooled,
            formats=formats,
            special={token.content: i for i, token in added.items() if token.special},
            markers={token.content: i for i, token in added.items() if token.content in formats.markers},
            system=_system_of(tokenizer) if plain else "any",
            alternates=bool(plain) and _refuses(tokenizer, [USER], USER),
            results_end=bool(tooled) and _refuses(tokenizer, [USER, CALL, RESULT], USER),
        )
        if wrong := found.settings_error(settings or {}):
            raise ConfigError(f"--chat-template-kwargs {wrong}")
        return replace(found, settings=settings or {})

    def knows(self, name: str, *, tools: bool = False) -> bool:
        """True if the template uses a variable of this name. tools: the template for conversations with tools."""
        template = self.tooled if tools else self.plain
        return template is not None and name in variables(template)

    def switches(self, *, tools: bool) -> list[str]:
        """Returns the template's variables that switch reasoning on and off."""
        return [name for name in SWITCHES if self.knows(name, tools=tools)]

    @property
    def takes_tools(self) -> bool:
        """True if the model is shown tools: by its template, or spelled in messages."""
        return self.knows("tools", tools=True) or self.spells_tools

    @property
    def why_no_tools(self) -> str:
        """The reason why tools are refused."""
        if not self.tooled:
            return "this model has no chat template"
        if self.knows("tools", tools=True) or self.formats.tools is None:
            return "this node cannot read the model's calls (--tool-parser)"
        return f"this model's chat template knows none, so its calls are {FALLBACK}, but --tool-parser says otherwise"

    @property
    def spells_tools(self) -> bool:
        """True if tools, calls and results are spelled in messages, since the template knows no tools."""
        return bool(self.tooled) and not self.knows("tools", tools=True) and self.formats.tools is TOOLS[FALLBACK]

    def shown(self, turns: Sequence[Turn], inputs: Inputs) -> tuple[Sequence[Turn], Inputs]:
        """Returns messages and inputs as the template takes them."""
        turns = self._with_system(turns)
        if self.spells_tools:
            turns = with_tools_as_text(turns, inputs.tools, has_system=self.system != "none")
            inputs = replace(inputs, tools=())
        if self.results_end:
            turns = list(_ended_by_results(turns))
        return list(_alternating(turns)) if self.alternates else turns, inputs

    def _with_system(self, messages: Sequence[Turn]) -> Sequence[Turn]:
        """Returns a conversation with all system messages where the template shows them.

        Those at the beginning become one, if the template shows the first alone; later ones, which agents send as
        reminders, join the user message beside them, or become one, after the results of tools.
        """
        if self.system == "any":
            return messages
        found, waiting = list[Turn](), list[str]()
        num_first = next((i for i, one in enumerate(messages) if one["role"] != "system"), len(messages))
        if num_first and self.system == "first":
            found = [_joined(messages[num_first - 1], [one["content"] for one in messages[:num_first]])]
            messages = messages[num_first:]
        for message in messages:
            if message["role"] == "system":
                waiting.append(message["content"])
                continue
            if message["role"] != "tool":  # nothing stands between a call and its results
                if waiting and message["role"] == "user":
                    message = _joined(message, [*waiting, message["content"]])
                else:
                    _say(waiting, found)
                waiting = []
            found.append(message)
        _say(waiting, found)
        return found

    def parser(self, schemas: Mapping[str, Mapping[str, Any]] | None, *, one_call: bool = False) -> ParserSettings:
        """Returns how to parse an answer. schemas: of the callable tools' parameters, by name; None: no tools."""
        formats = self.formats if schemas is not None else Formats(self.formats.thinking)
        closes = self.markers.get(formats.thinking.closes) if formats.thinking is not None else None
        hidden = frozenset(i for text, i in self.special.items() if text not in formats.markers)
        shows_some = len(hidden) < len(self.special)
        return ParserSettings(formats, hidden if shows_some else None, schemas or {}, one_call, closes)

    def settings_error(self, settings: Mapping[str, Any], *, tools: bool = False) -> str | None:
        """Returns what is wrong with variables for the template; None if they are valid."""
        if len(settings) > MAX_SETTINGS:
            return f"must have at most {MAX_SETTINGS} members"
        for name in settings:
            if not NAME.fullmatch(name) or name in RESERVED or name in SPECIAL:
                return f"must not set {name[:64]!a}, which is reserved; leave it out"
            if not self.knows(name, tools=tools):
                return f"sets {name!r}, which this model's chat template does not know; leave it out"
        if depth(settings) > MAX_DEPTH:
            return f"must not nest lists and objects more than {MAX_DEPTH} deep"
        if len(json.dumps(settings)) > MAX_SETTINGS_CHARS:
            return f"must have at most {MAX_SETTINGS_CHARS} characters"
        return None


def _joined(message: Mapping[str, Any], texts: Sequence[str]) -> Mapping[str, Any]:
    return {**message, "content": "\n\n".join(texts)}


def _say(texts: Sequence[str], found: list[Mapping[str, Any]]) -> None:
    """Adds system texts to the last message if it is a user message, else as a user message of their own."""
    if texts and found and found[-1]["role"] == "user":
        found[-1] = _joined(found[-1], [found[-1]["content"], *texts])
    elif texts:
        found.append(_joined({"role": "user"}, texts))


def _system_of(tokenizer: Any) -> System:
    """Finds which system messages a chat template shows, by rendering two conversations."""
    marks = "the first mark", "the second mark"
    first, later = ({"role": "system", "content": mark} for mark in marks)
    if _shows(tokenizer, [first, USER, ASSISTANT, later, USER], *marks) or not _shows(tokenizer, [USER]):
        return "any"
    return "first" if _shows(tokenizer, [first, USER], marks[0]) else "none"


def _refuses(tokenizer: Any, turns: list[Turn], more: Turn) -> bool:
    """True if the chat template takes a conversation, but not with one message more."""
    return _shows(tokenizer, turns) and not _shows(tokenizer, [*turns, more])


USER, ASSISTANT = {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}
CALL: Turn = {  # with an id as Mistral's templates want it
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "123456789", "type": "function", "function": {"name": "f", "arguments": {}}}],
}
RESULT = {"role": "tool", "tool_call_id": "123456789", "name": "f", "content": "three"}


def _shows(tokenizer: Any, turns: Sequence[Turn], *marks: str) -> bool:
    """True if the chat template takes a conversation, and shows the texts."""
    try:
        text = tokenizer.apply_chat_template([*turns], tokenize=False)
    except Exception:  # templates may raise anything to refuse a conversation
        return False
    return all(mark in text for mark in marks)


def _alternating(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yields a conversation in which what a user says in a row is one message, and what the assistant says, too.

    Calls stay by themselves: some templates write no text beside them.
    """
    for (role, calls), run in groupby(turns, lambda turn: (turn["role"], "tool_calls" in turn)):
        messages = list(run)
        if role not in ("user", "assistant") or calls or len(messages) == 1:
            yield from messages
            continue
        joined = {"role": role, "content": _paragraphs(*(message["content"] for message in messages))}
        if thoughts := _paragraphs(*(message.get("reasoning_content", "") for message in messages)):
            joined["reasoning_content"] = thoughts
        yield joined


def _ended_by_results(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yields a conversation in which what a user says after a tool's result ends the result."""
    last: Turn | None = None
    for role, run in groupby(turns, lambda turn: turn["role"]):
        messages = list(run)
        if role == "user" and last is not None:
            last = _joined(last, [text for message in (last, *messages) if (text := message["content"])])
            continue
        if last is not None:
            yield last
        last = messages.pop() if role == "tool" else None
        yield from messages
    if last is not None:
        yield last


def reasoning_state(tokenizer: Any, prompt: tuple[int, ...], parser: ParserSettings) -> ReasoningState:
    """Returns the state of reasoning at a prompt's end: open after the opening marker, closed after the closing one.

    Else "may"; "closed" if the reasoning format is unknown. A continued text opens no reasoning.
    """
    thinking = parser.formats.thinking
    if thinking is None:
        return "closed"
    if parser.continued is not None:
        return "open" if parser.continued == "thinking" else "closed"
    end = end_of(tokenizer, prompt).rstrip()
    return "open" if end.endswith(thinking.opens) else "closed" if end.endswith(thinking.closes) else "may"


def with_tools_as_text(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]], *, has_system: bool) -> list[Turn]:
    """Returns the conversation with the tools in its first message, and calls and results as text, in Hermes' format.

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
    return [*found[:at], {**found[at], "content": _paragraphs(*texts)}, *found[at + 1 :]]


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
                yield {**turn, "content": _paragraphs(results, turn["content"])}
            else:
                yield from [{"role": "user", "content": results}] if results else []
                yield turn
            results = ""
    if results:
        yield {"role": "user", "content": results}


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
