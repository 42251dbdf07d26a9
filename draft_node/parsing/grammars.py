"""Builds grammars for answers with tool calls, in the Lark syntax with `%json` of `goodspeed/constraint`.

If a call is required, the grammar allows only calls after optional reasoning, and one of the target's stop strings
after them. Otherwise it allows text and well-formed calls, whose arguments satisfy the schemas of strict tools. A
marker that is a token is written by id. The parser knows markers by their text, so text must not spell one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from draft_node.parsing.formats import Formats, ToolFormat
from draft_node.parsing.tool_parsers import CLOSED, FUNCTION, FUNCTION_ENDS, PARAMETER, PARAMETER_ENDS
from draft_node.parsing.tool_schemas import (
    check_expressible,
    check_parameters,
    choices_of,
    is_legible,
    may_be_call,
    parameters_of,
    types_of,
)
from goodspeed.constraint.forcing import ANY_TEXT, without
from goodspeed.constraint.references import Resolver, standalone

LINE = r'"\n"'
BARE_CALL = r"/[\s\x1c-\x1f]*\{/ | "  # after blanks: those of Python's str.isspace

MAX_CHARS = 1 << 16
"""Longest grammar of an answer."""

MAY_BE_CALL = (
    "this model's calls are JSON with a name and parameters, and so may the content be; beside strict tools give it a "
    'schema that has no name, and "additionalProperties": false'
)

NO_CALLS = ToolFormat("", "json", ())

ReasoningState = Literal["open", "may", "closed"]
"""Reasoning at the end of the prompt: open; may: the model may open it; closed: ended, or unknown format."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    name: str
    schema: Mapping[str, Any]  # of its parameters
    strict: bool = False


def loosened(tool: Tool) -> Tool:
    """Returns a tool whose arguments have the same names as before, and any values."""
    properties, required = parameters_of(tool.schema)
    return Tool(tool.name, {"properties": {key: {} for key in properties}, "required": required})


@dataclass(frozen=True, slots=True)
class GrammarSettings:
    """Everything besides the tools on which an answer's grammar depends."""

    formats: Formats
    ids: Mapping[str, int] = field(default_factory=dict)  # token ids of markers that are tokens
    opened: ReasoningState = "closed"
    is_forced: bool = False  # only calls, at least one
    one_call: bool = False
    content: Mapping[str, Any] | None = None  # JSON schema of text without calls; None: any text
    stops: tuple[str, ...] = ()  # the target's stop strings, which may end required calls

    @property
    def after(self) -> tuple[int, ...]:
        """The token after which the grammar applies, if the prompt opened reasoning; else empty."""
        thinking = self.formats.thinking
        if self.opened != "open" or thinking is None or thinking.closes not in self.ids:
            return ()
        return (self.ids[thinking.closes],)


def grammar(form: GrammarSettings, tools: Sequence[Tool]) -> str:
    """Returns the grammar of an answer; without tools, of reasoning and content only.

    ValueError with the reason if the model's tool format is unknown, a tool's schema does not suit it, or the grammar
    is too long.
    """
    if form.formats.tools is None and tools:
        raise ValueError("this model's format of tool calls is unknown, so its calls cannot be constrained")
    return _Writer(form, tools).written()


class _Writer:
    """Collects the rules of one grammar."""

    def __init__(self, form: GrammarSettings, tools: Sequence[Tool]) -> None:
        self._form = form
        self._format = form.formats.tools or NO_CALLS
        self._tools = tools
        self._rules = list[str]()
        self._num_values = 0
        self._has_any_parameter = False
        self._num_chars = 0

    def written(self) -> str:
        if self._tools:
            calls = self._calls()
            start = f"{calls}{self._stop()}" if self._form.is_forced else self._with_text(calls)
        else:
            start = self._content()
        first = self._counted(f"start: {self._thought()}{start}")
        self._rule(r"BLANK: /[ \n]*/")
        return "\n".join([first, *self._rules]) + "\n"

    def _rule(self, rule: str) -> None:
        self._rules.append(self._counted(rule))

    def _counted(self, written: str) -> str:
        """Counts early: a definition is written once for each parameter that needs it, so grammars may get long."""
        self._num_chars += len(written) + 1
        self._check(0)
        return written

    def _check(self, num_more: int) -> None:
        """ValueError if the rules so far plus `num_more` characters are too long."""
        if self._num_chars + num_more > MAX_CHARS:
            raise ValueError(f"the schemas are too long: their grammar has more than {MAX_CHARS} characters")

    # -- markers -------------------------------------------------------------------------------------------------------

    def _mark(self, marker: str) -> str:
        return f"<[{self._form.ids[marker]}]>" if marker in self._form.ids else _dumped(marker)

    def _text(self, name: str, *markers: str, beginning: str = "") -> str:
        """Adds a terminal for any text without these markers, and this beginning; returns its name."""
        self._rule(f"UNLIKE_{name}: {beginning}{ANY_TEXT} ({' | '.join(map(_dumped, markers))})")
        self._rule(f"{name}: {without(f'UNLIKE_{name}')}")
        return name

    def _until(self, rule: str, text: str, marker: str) -> str:
        """Adds a rule for text up to and including a marker; returns the rule's name. text: its terminal."""
        lazy = "" if marker in self._form.ids else "[lazy]"
        self._rule(f"{rule}{lazy}: {text} {self._mark(marker)}")
        return rule

    def _thought(self) -> str:
        thinking = self._form.formats.thinking
        if thinking is None or self._form.opened == "closed":
            return ""
        if self._form.after:
            return "BLANK "
        is_token = thinking.closes in self._form.ids  # then thinking may spell it
        text = ANY_TEXT if is_token else self._text("THOUGHT", thinking.closes)
        until = self._until("thought", text, thinking.closes)
        return f"{until} BLANK " if self._form.opened == "open" else f"({self._mark(thinking.opens)} {until} BLANK)? "

    def _content(self) -> str:
        self._rule(f"content: %json {_dumped(self._form.content or {})}")
        return "content"

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _with_text(self, calls: str) -> str:
        """Returns the start of a grammar in which calls are optional."""
        thinking = self._form.formats.thinking
        if self._form.content is not None:
            if self._format.bare and any(tool.strict for tool in self._tools) and may_be_call(self._form.content):
                raise ValueError(MAY_BE_CALL)
            return f"({calls} | {self._content()})"
        markers = (*self._format.opens, *([thinking.opens] if thinking is not None else []))
        if self._format.bare:
            return f"({calls} | {self._text('OTHER', *markers, beginning=BARE_CALL)})"
        text = self._text("TEXT", *markers)
        spoken = [
            f"{self._until(f'lead_{i}', text, marker)} {'rest_of_function' if marker == FUNCTION else 'rest_of_call'}"
            for i, marker in enumerate(self._format.opens)
        ]
        self._rule(f"spoken: {' | '.join(spoken)}")
        return f"spoken* {text}"

    def _calls(self) -> str:
        """Returns the expression for one call, or for several if allowed."""
        opener = "" if self._format.bare else self._mark(self._format.opens[0])
        self._rule(f"call: {opener} rest_of_call")
        between = {"llama3_json": '"; "', "mistral": ""}.get(self._format.name, LINE)
        listed = self._format.syntax == "mistral" and "[ARGS]" not in self._form.ids
        self._rule(f"rest_of_call: {self._list() if listed else self._one_of_tools()}")
        return "call" if self._form.one_call or listed else f"call ({between} call)*"

    def _stop(self) -> str:
        """Returns the expression for a stop string after calls, for targets that end turns with one instead of EOS.

        If one call is allowed, the answer ends with it, before any stop string.
        """
        if not self._form.stops or self._form.one_call:
            return ""
        return f" ({' | '.join(map(_dumped, self._form.stops))})?"

    def _one_of_tools(self) -> str:
        ends = self._mark(self._format.ends[0]) if self._format.ends and not self._format.bare else ""
        match self._format.syntax:
            case "xml":
                self._rule(f"function: {' | '.join(map(self._xml, self._tools))}")
                self._rule(f"rest_of_function: function ({LINE} {ends})?")
                bodies = [f"{_dumped(FUNCTION)} function"]
            case "mistral":
                bodies = [f"{_dumped(tool.name)} {self._mark('[ARGS]')} {self._json(tool)}" for tool in self._tools]
            case "json":
                bodies = [self._value(self._object(tool)) for tool in self._tools]
        blank = "" if self._format.bare or self._format.syntax == "mistral" else LINE
        return f"{blank} ({' | '.join(bodies)}) {blank} {ends}".strip()

    def _list(self) -> str:
        """Returns the expression for a list of calls, the syntax of older Mistral models."""
        objects = " | ".join(self._value(self._object(tool)) for tool in self._tools)
        self._rule(f"listed: {objects}")
        more = "" if self._form.one_call else ' (", " listed)*'
        return f'"[" listed{more} "]"'

    def _object(self, tool: Tool) -> dict[str, Any]:
        key = "parameters" if self._format.name == "llama3_json" else "arguments"
        inner = self._schema(tool)
        outer: dict[str, Any] = {name: inner.pop(name) for name in ("$schema", "$defs") if name in inner}
        found = {
            "type": "object",
            "properties": {"name": {"const": tool.name}, key: inner},
            "required": ["name", key],
            "additionalProperties": False,
        }
        return {**outer, **found, **_options(tool)}

    def _json(self, tool: Tool) -> str:
        return self._value({**self._schema(tool), **_options(tool)})

    def _schema(self, tool: Tool) -> dict[str, Any]:
        """Returns the schema of arguments: an object, even if the tool's schema allows other types.

        The tool's own schema applies only if the tool is strict or a call is required.
        """
        if not self._has_schema(tool):
            return {"type": "object"}
        found: dict[str, Any] = standalone(tool.schema, tool.schema, is_lenient=not tool.strict)
        return {**found, "type": "object"}

    def _has_schema(self, tool: Tool) -> bool:
        return tool.strict or self._form.is_forced

    def _value(self, schema: Mapping[str, Any]) -> str:
        self._num_values += 1
        name = f"json_{self._num_values}"
        self._rule(f"{name}: %json {_dumped(schema)}")
        return name

    # -- Qwen3-Coder ---------------------------------------------------------------------------------------------------

    def _xml(self, tool: Tool) -> str:
        if not self._has_schema(tool):
            return f"{_dumped(f'{tool.name}>{chr(10)}')} {self._any_parameter()}* {_dumped(FUNCTION_ENDS)}"
        properties, required = parameters_of(tool.schema)
        if tool.strict:
            check_expressible(tool.name, tool.schema)
            check_parameters(tool.name, properties, required)
        else:
            properties = {
                **properties,
                **{key: {} for key in required if isinstance(key, str) and key not in properties},
            }
        resolver = Resolver(tool.schema)
        parts, num_chars = [_dumped(f"{tool.name}>\n")], 0
        for key, wanted in properties.items():
            if is_legible(key):
                part = f"{_dumped(f'{PARAMETER}{key}>')} {self._xml_value(wanted, tool, resolver)}"
                parts.append(part if key in required else f"({part})?")
                num_chars += len(part)
                self._check(num_chars)
        return " ".join([*parts, _dumped(FUNCTION_ENDS)])

    def _any_parameter(self) -> str:
        """Returns the name of the rule for a parameter of any name and value, which is added once."""
        if not self._has_any_parameter:
            self._has_any_parameter = True
            self._rule(r"KEY: /[^>\s]([^>\n]*[^>\s])?/")
            self._rule(f"any_parameter: {_dumped(PARAMETER)} KEY {_dumped('>')} {self._any_text()}")
        return "any_parameter"

    def _any_text(self) -> str:
        """Adds a rule for a value of any text, and its end marker; returns the rule's name."""
        self._num_values += 1
        name = f"text_{self._num_values}"
        self._rule(f"{name}[lazy]: {LINE} ({ANY_TEXT} {LINE})? {_dumped(CLOSED[1:])}")  # ends at the first CLOSED
        return name

    def _xml_value(self, wanted: Any, tool: Tool, resolver: Resolver) -> str:
        """Returns the expression for a value between line breaks, and its end marker.

        The value is bare text if a string is allowed, else JSON.
        """
        choices = choices_of(wanted, resolver)
        if choices and any(isinstance(one, str) for one in choices):
            bare = [one if isinstance(one, str) else _dumped(one) for one in choices]
            if not any(PARAMETER_ENDS in one for one in bare):
                return f"{LINE} ({' | '.join(map(_dumped, bare))}) {_dumped(CLOSED)}"
            if tool.strict:
                raise ValueError(
                    f"an enum of {tool.name} has {PARAMETER_ENDS}, which ends a value in this model's calls"
                )
            return self._any_text()
        schema, types = wanted if isinstance(wanted, dict) else {}, types_of(wanted, resolver)
        if choices is None and (not types or "string" in types):
            return self._any_text()
        found = standalone(schema, resolver, is_lenient=not tool.strict)
        return f"{LINE} {self._value({**found, **_options(tool)})} {_dumped(CLOSED)}"


def _options(tool: Tool) -> dict[str, Any]:
    """Returns llguidance options for a tool's schema: unimplemented keywords are errors only in strict tools."""
    return {} if tool.strict else {"x-guidance": {"lenient": True}}


def _dumped(value: Any) -> str:
    return json.dumps(value)
