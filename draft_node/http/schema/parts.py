"""Parts of messages: text, and what this model cannot see or hear, which becomes a sentence of text."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import Discriminator, Tag

from draft_node.http.schema.strict import LeftOut, Strict

DATED = re.compile(r"_\d{4}_\d\d_\d\d\Z")
"""End of the name of a hosted tool's version."""


def kind_of(default: str = "", alike: Mapping[str, str] = MappingProxyType({})) -> Discriminator:
    """Selects a union's branch by `type`. Tags have brackets, so that error messages omit them.

    alike: types that share another one's branch.
    """

    def kind(given: Any) -> str:
        found = given.get("type") or default if isinstance(given, dict) else getattr(given, "type", default)
        return f"[{alike.get(DATED.sub('', found[:64]), found) if isinstance(found, str) else found}]"

    return Discriminator(kind)


class Words(Protocol):
    """A part of a message that has text."""

    @property
    def text(self) -> str: ...


class TextPart(Strict):
    type: Literal["text"]
    text: str


IMAGE, RECORDING, FILE = "image_url", "input_audio", "file"
"""Types in chats of the parts that no text model can read."""

IN_CHATS = {
    **dict.fromkeys((IMAGE, "image", "input_image"), IMAGE),
    RECORDING: RECORDING,
    **dict.fromkeys((FILE, "document", "input_file", "container_upload"), FILE),
}
"""These types by their types in the three APIs."""

NOUNS = {IMAGE: "an image", RECORDING: "a recording", FILE: "a file"}


class Unseen(LeftOut):
    """An image, a recording or a file, which becomes a sentence of text."""

    @property
    def chat_type(self) -> str:
        return IN_CHATS[self.type]

    @property
    def noun(self) -> str:
        return NOUNS[self.chat_type]

    @property
    def text(self) -> str:
        return f"[{self.noun} that this model cannot read]"


Part: TypeAlias = Annotated[
    Annotated[TextPart, Tag("[text]")]
    | Annotated[Unseen, Tag(f"[{IMAGE}]")]
    | Annotated[Unseen, Tag(f"[{RECORDING}]")]
    | Annotated[Unseen, Tag(f"[{FILE}]")],
    kind_of("text"),
]
"""A part of a chat's message."""


def text_of(content: str | Iterable[Words] | None) -> str:
    """Returns the text of a message's content: of its parts joined; "" for None."""
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


def content_of(content: str | Iterable[Words]) -> str | list[dict[str, str]]:
    """Returns the content of a user's message for a chat request: text, or parts if the model cannot see them all.

    The chat refuses these parts where the user asks about them, and has their sentences elsewhere (`ChatRequest`).
    """
    parts = [] if isinstance(content, str) else list(content)
    if not any(isinstance(part, Unseen) for part in parts):
        return text_of(content if isinstance(content, str) else parts)
    return [
        {"type": part.chat_type} if isinstance(part, Unseen) else {"type": "text", "text": part.text} for part in parts
    ]
