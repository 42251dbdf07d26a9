"""Finds control tokens, which structure a conversation, in the texts that users put into one.

A tokenizer encodes the name of such a token as the token itself, whoever wrote it. So a text could end its own turn and
begin another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, TemplateError

from goodspeed.engine.tokenizing.text import encode_part
from goodspeed.errors import PromptError


class ControlTokens:
    """A tokenizer's special tokens, and the other added tokens that its chat template writes."""

    def __init__(self, tokenizer: Any) -> None:
        literals = _literals(getattr(tokenizer, "chat_template", None) or "")
        self.names = {
            token_id: token.content
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.special or (any(token.content in each for each in literals) and not token.content.isspace())
        }
        self._heads, self._middles, self._tails = _joinable(set(self.names.values()), literals)

    def refuse(self, tokenizer: Any, *given: Any) -> None:
        """Raises PromptError for a string anywhere in these JSON values that spells a control token.

        So does a string that becomes one between the template's own text, as the names of a schema that some templates
        put into brackets. Not noticed: a template that joins two of a user's strings to one.
        """
        for text, is_name in _strings(given):
            found = next((self.names[token] for token in encode_part(tokenizer, text) if token in self.names), "")
            if not found and (name := self._joined(text.strip(), is_name=is_name)):
                found = name
            if found:
                what = f"{text[:80]!a} spells the control token {found[:80]!a}"
                raise PromptError(f"{what}; remove it, since this node refuses them (--refuse-control-tokens)")

    def _joined(self, text: str, *, is_name: bool) -> str | None:
        """Returns the control token that the template's text and this one spell together."""
        for parts, fits in ((self._heads, text.startswith), (self._tails, text.endswith)):
            if (part := next(filter(fits, parts), None)) is not None:
                return parts[part]
        return self._middles.get(text) if is_name else None


def _literals(templates: str | Mapping[str, str]) -> Sequence[str]:
    """Returns what stands in templates as it will be written: text, and strings in expressions."""
    found: list[str] = []
    for template in [templates] if isinstance(templates, str) else templates.values():
        try:
            tokens = list(Environment().lex(template))
            strings = [value[1:-1].encode("ascii", "backslashreplace") for _, kind, value in tokens if kind == "string"]
            found += [one.decode("unicode-escape") for one in strings]
        except (TemplateError, UnicodeDecodeError):  # every conversation is refused by this template
            continue
        found += [value for _, kind, value in tokens if kind == "data"]
    return found


def _joinable(names: set[str], literals: Sequence[str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Returns what spells a name after, between and before literals of a template: (heads, middles, tails) of texts."""
    heads, middles, tails = dict[str, str](), dict[str, str](), dict[str, str]()
    for name in names:
        before = [at for at in range(1, len(name)) if any(each.endswith(name[:at]) for each in literals)]
        after = [at for at in range(1, len(name)) if any(each.startswith(name[at:]) for each in literals)]
        heads |= {name[at:]: name for at in before}
        tails |= {name[:at]: name for at in after}
        middles |= {name[first:last]: name for first in before for last in after if first < last}
    return heads, middles, tails


def _strings(value: Any, *, is_name: bool = False) -> Iterator[tuple[str, bool]]:
    """Yields all strings of JSON values, and whether they name something."""
    match value:
        case str():
            yield value, is_name
        case Mapping():
            for key, member in value.items():
                yield key, True
                yield from _strings(member, is_name=key == "name")
        case list() | tuple():
            for member in value:
                yield from _strings(member)
