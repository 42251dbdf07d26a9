"""What a text is made of, in the order in which it was written. Joined, the parts' `raw` is the text."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text that the model writes for itself before it answers."""

    text: str

    @property
    def raw(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that is called; `arguments` is a JSON object as text."""

    name: str
    arguments: str
    raw: str = ""  # what was written; empty for all but the first of several calls that came as one list


@dataclass(frozen=True, slots=True)
class Dropped:
    """A marker, and the blanks beside it: no part of what is said."""

    raw: str


Part: TypeAlias = Content | Thinking | Call | Dropped


def joined(parts: list[Part]) -> list[Part]:
    """Returns the parts with neighbours of one kind as one; calls stay as they are."""
    found = list[Part]()
    for part in parts:
        match found[-1] if found else None, part:
            case Content(before), Content(text):
                found[-1] = Content(before + text)
            case Thinking(before), Thinking(text):
                found[-1] = Thinking(before + text)
            case Dropped(before), Dropped(raw):
                found[-1] = Dropped(before + raw)
            case _:
                found.append(part)
    return found
