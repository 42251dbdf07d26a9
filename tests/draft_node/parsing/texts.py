"""Texts of every format with the parts that they have, and tools that the models know."""

from draft_node.parsing.formats import THINKING, TOOLS, Call, Content, Formats, ParsedPart, Thinking, joined
from draft_node.parsing.parser import Parser, ParserSettings

THINK = THINKING["think"]
HERMES = Formats(THINK, TOOLS["hermes"])
CODER = Formats(THINK, TOOLS["qwen3_coder"])
LLAMA = Formats(None, TOOLS["llama3_json"])
MISTRAL = Formats(THINKING["mistral"], TOOLS["mistral"])
ALL = {"hermes": HERMES, "qwen3_coder": CODER, "llama3_json": LLAMA, "mistral": MISTRAL}

TYPES = {"n": "integer", "x": "number", "on": "boolean", "code": "string", "all": "array"}
PROPERTIES: dict[str, object] = {
    **{name: {"type": kind} for name, kind in TYPES.items()},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "place": {"$ref": "#/$defs/Place"},
}
SCHEMAS = {
    "f": {"type": "object", "properties": PROPERTIES, "$defs": {"Place": {"type": "object"}}},
    "g": {"type": "object", "properties": {}},
}


def parse(formats: Formats, *pieces: str, is_thinking: bool = False) -> list[ParsedPart]:
    """All parts of a text that comes in these pieces."""
    parser = Parser(ParserSettings(formats, schemas=SCHEMAS), is_thinking=is_thinking)
    parts = [part for piece in pieces for part in parser.push(piece)]
    return joined([*parts, *parser.end()])


class Case:
    """A text as a model writes it, cut at each "¦" as a tokenizer may cut it, and the parts that it has."""

    def __init__(self, formats: Formats, written: str, *parts: ParsedPart, is_thinking: bool = False) -> None:
        self.formats, self.parts, self.is_thinking = formats, list(parts), is_thinking
        self.tokens = tuple(written.split("¦"))
        self.text = "".join(self.tokens)


F = '{"n": 1}'
CASES = {
    "plain": Case(HERMES, "The ¦river¦ <b¦> is ¦< 3¦\n\n", Content("The river <b> is < 3\n\n")),
    "thinking": Case(HERMES, "<think>¦\n¦So¦ it¦\n¦</think>¦\n\n¦Yes¦.", Thinking("So it"), Content("Yes.")),
    "the prompt opens it": Case(
        HERMES, "\n¦a <¦/think¦ b\n\n¦</¦think>¦c", Thinking("a </think b"), Content("c"), is_thinking=True
    ),
    "thinking that never ends": Case(HERMES, "a¦ b¦\n", Thinking("a b\n"), is_thinking=True),
    "a marker that is said": Case(HERMES, "say ¦<think>¦ or¦ </think>", Content("say <think> or </think>")),
    "one call": Case(HERMES, '<tool_call>¦\n¦{"name": "f", ¦"argu¦ments": {"n¦": 1}¦}¦\n¦</tool¦_call>', Call("f", F)),
    "thought, text, two calls": Case(
        HERMES,
        "<think>\nhm\n</think>\n\nLet me¦"
        ' look.\n<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>¦'
        '\n<tool_call>\n{"arguments": "{}", "name": "g"}\n</tool_call>\n',
        *(Thinking("hm"), Content("Let me look."), Call("f", F), Call("g", "{}")),
    ),
    "markers in strings": Case(
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"code": "</tool_call> \\"}<think>{"}}</tool_call>',
        Call("f", '{"code": "</tool_call> \\"}<think>{"}'),
    ),
    "the last marker is missing": Case(HERMES, '<tool_call>¦{"name": "g"}', Call("g", "{}")),
    "a call that ends early": Case(
        HERMES, 'ok ¦<tool_call>¦\n{"name": "f¦", "arg', Content('ok <tool_call>\n{"name": "f", "arg')
    ),
    "no JSON": Case(HERMES, "<tool_call>¦\nf(¦1)\n¦</tool_call>", Content("<tool_call>\nf(1)\n</tool_call>")),
    "no call, then a call": Case(
        HERMES,
        '<tool_call>¦<tool_call>{"name": "g"}¦</tool_call>¦ ok',
        *(Content("<tool_call>"), Call("g", "{}"), Content("ok")),
    ),
    "JSON that is no call": Case(
        HERMES, '<tool_call>¦{"n": 1}¦</tool_call>', Content('<tool_call>{"n": 1}</tool_call>')
    ),
    "thinking again after a call": Case(
        HERMES,
        '<think>¦a¦</think>¦<tool_call>{"name": "g"}¦</tool_call>¦\n<think>¦b</think>¦c <think>',
        *(Thinking("a"), Call("g", "{}"), Thinking("b"), Content("c <think>")),
    ),
    "no formats": Case(Formats(), "<think>a¦</think>¦[TOOL_CALLS]¦[]", Content("<think>a</think>[TOOL_CALLS][]")),
    "coder": Case(
        CODER,
        "Sure.\n<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=code>\nif a < b:\n    "
        "'</parameter>'\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n</function>\n</tool_call>",
        *(Content("Sure."), Call("f", '{"n": 1, "code": "if a < b:\\n    \'</parameter>\'", "on": true}')),
    ),
    "coder without arguments": Case(
        CODER, "<tool_call>¦\n<func¦tion=¦g>¦\n¦</function>¦\n</tool_call>", Call("g", "{}")
    ),
    "coder without the marker": Case(
        CODER,
        "<function=f><parameter=x>2.5</parameter><parameter=maybe>null</parameter><parameter=all>[1]</parameter>¦"
        "</function>",
        Call("f", '{"x": 2.5, "maybe": null, "all": [1]}'),
    ),
    "coder, wrong types": Case(
        CODER,
        '<function=f>\n<parameter=n>one</parameter>¦<parameter=place>{"a": 1}</parameter>\n'
        "<parameter=other>1</parameter></function>",
        Call("f", '{"n": "one", "place": {"a": 1}, "other": "1"}'),
    ),
    "coder that ends early": Case(
        CODER, "<tool_call>¦<function=f>¦<parameter=n>¦1", Content("<tool_call><function=f><parameter=n>1")
    ),
    "llama": Case(LLAMA, '{"name": "f", ¦"parameters": ¦{"n": 1}¦}', Call("f", F)),
    "llama, two": Case(
        LLAMA,
        '<|python_tag|>¦{"name": "f", "parameters": {"n": 1}}¦; ¦{"name": "g", "parameters": {}}',
        *(Call("f", F), Call("g", "{}")),
    ),
    "llama, JSON for the user": Case(
        LLAMA, '{"name": ¦"Ana", ¦"parameters": {}}¦ and {', Content('{"name": "Ana", "parameters": {}} and {')
    ),
    "llama, later JSON": Case(
        LLAMA, 'See {"name": "f", "parameters": {}}', Content('See {"name": "f", "parameters": {}}')
    ),
    "mistral, a list": Case(
        MISTRAL,
        '[TOOL_CALLS]¦ [¦{"name": "f", ¦"arguments": {"n": 1}}¦, {"name": "g", "arguments": {}}¦]',
        *(Call("f", F), Call("g", "{}")),
    ),
    "mistral, names": Case(
        MISTRAL,
        '[THINK]¦a ]¦[/THINK]¦b¦[TOOL_CALLS]¦f¦[ARGS]¦{"n": 1}¦[TOOL_CALLS]¦g¦{¦}',
        *(Thinking("a ]"), Content("b"), Call("f", F), Call("g", "{}")),
    ),
    "mistral with an id": Case(
        MISTRAL, '[TOOL_CALLS]f[CALL_ID]123456789[ARGS]¦{"n": 1}¦ done', Call("f", F), Content("done")
    ),
    "mistral, blanks": Case(MISTRAL, '[TOOL_CALLS]f[ARGS]¦ {"n": 1}', Call("f", F)),
    "mistral, a line": Case(MISTRAL, '[TOOL_CALLS]f¦[ARGS]¦\n{"n": 1}', Call("f", F)),
    "mistral, no list": Case(MISTRAL, "[TOOL_CALLS]¦[¦1, 2]", Content("[TOOL_CALLS][1, 2]")),
}
