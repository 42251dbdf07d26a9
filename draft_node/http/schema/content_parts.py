"""Parts of messages: text, and what this model cannot see or hear, which becomes a sentence of text."""

from collections.abc import Iterable
from typing import Annotated, Literal, Protocol, TypeAlias

from draft_node.http.schema.strict import ByType, LeftOut, Strict


class HasText(Protocol):
    """A part of a message; has a text."""

    @property
    def text(self) -> str: ...


class TextPart(Strict):
    type: Literal["text"]
    text: str


class RefusalText(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


NOUNS = {"image_url": "an image", "input_audio": "a recording", "file": "a file"}
"""What no text model can read, by the type of the part in chats."""

IN_CHATS = {
    **{kind: kind for kind in NOUNS},
    **dict.fromkeys(("image", "input_image"), "image_url"),
    **dict.fromkeys(("document", "input_file", "container_upload"), "file"),
}
"""These types by their types in the three APIs."""


class Unseen(LeftOut):
    """An image, a recording or a file, which becomes a sentence of text."""

    types = "|".join(IN_CHATS)

    @property
    def chat_type(self) -> str:
        return IN_CHATS[self.type]

    @property
    def noun(self) -> str:
        return NOUNS[self.chat_type]

    @property
    def text(self) -> str:
        return f"[{self.noun} that this model cannot read]"


ContentPart: TypeAlias = Annotated[TextPart | RefusalText | Unseen, ByType("text")]
"""A part of a chat's message."""


def text_of(content: str | Iterable[HasText] | None) -> str:
    """Returns the text of a message's content: of its parts, a line each; empty ones are left out."""
    return content if isinstance(content, str) else "\n".join(filter(None, (part.text for part in content or ())))


def content_of(content: str | Iterable[HasText]) -> str | list[dict[str, str]]:
    """Returns the content of a user's message for a chat request: text, or parts if the model cannot see them all.

    The chat refuses these parts where the user asks about them, and has their sentences elsewhere (`ChatRequest`).
    """
    parts = [] if isinstance(content, str) else list(content)
    if not any(isinstance(part, Unseen) for part in parts):
        return text_of(content if isinstance(content, str) else parts)
    return [
        {"type": part.chat_type} if isinstance(part, Unseen) else {"type": "text", "text": part.text} for part in parts
    ]
