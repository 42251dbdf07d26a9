"""Renders chat templates as transformers does, without transformers.

A template comes with a checkpoint, so it is foreign code: it runs in jinja's sandbox, sees plain texts only, and may
not keep names that begin with an underscore, as in transformers' `chat_template_utils.py`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

RESERVED = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "conversation"),
        *("chat_template", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens"),
        *("raise_exception", "strftime_now", "dict", "namespace", "range", "lipsum", "cycler", "joiner"),
    }
)
"""Names that are no settings: transformers' own, and those of the sandbox."""


def for_tools(templates: str | Mapping[str, str] | None, *, tools: bool) -> str | None:
    """Returns the template to use of those that a tokenizer has by name; one for tools is called `tool_use`."""
    if templates is None or isinstance(templates, str):
        return templates
    return (templates.get("tool_use") if tools else None) or templates.get("default")


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str],
    tools: Sequence[Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Returns a conversation as a text up to the assistant's turn; a template raises what it likes.

    Members of messages that are None are left out, and what a message thinks is there under each name that templates
    read, as in transformers.
    """
    variables = {
        "messages": [_turn(message) for message in messages],
        "tools": [dict(tool) for tool in tools] if tools else None,
        "documents": None,
        "add_generation_prompt": True,
    }
    return str(_compiled(template).render(**{**special_tokens, **(settings or {}), **variables}))


def _turn(message: Mapping[str, Any]) -> dict[str, Any]:
    turn = {name: value for name, value in message.items() if value is not None}
    reasoning = turn.get("reasoning_content")
    return turn if reasoning is None else {"thinking": reasoning, **turn}


@lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment.from_string(template)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """jinja's own filter would escape what HTML does not like."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here its content is text like any other."""

    tags = {"generation"}  # noqa: RUF012  # jinja reads it from the class

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Any) -> str:
        return str(caller())


class _Dict:
    """`dict` for templates, without the type itself, whose attributes lead further."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """A namespace whose names do not begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # like jinja's: `namespace(self=1)` is allowed
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a chat template may not keep {name!r} in a namespace; rename it")
