"""How families of models write what they think and the tools that they call. Plain data.

Sources: the chat templates of Qwen2.5, Qwen3, Qwen3-Coder, Hermes 2 Pro, Llama 3.1 to 3.3, Mistral (v3 to v13),
Magistral and DeepSeek-R1. Names of formats are those of vLLM's parsers where it has one of that kind.
"""

from dataclasses import dataclass
from typing import Literal

Body = Literal["json", "xml", "mistral"]


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """Text between two markers, at the beginning of a text or after another marker."""

    name: str
    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls that begin with a marker."""

    name: str
    body: Body
    opens: tuple[str, ...]
    bare: str = ""  # opens a call where a text begins or a call ended; it is a part of the call
    ends: tuple[str, ...] = ()  # markers that may follow a call
    inner: tuple[str, ...] = ()  # markers inside of calls
    id_length: int = 24  # characters of a call's id; templates of some families check them
    id_prefix: str = "call_"

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers, some of which may be special tokens."""
        return (*self.opens, *self.ends, *self.inner)


@dataclass(frozen=True, slots=True)
class Formats:
    """How one model writes; None: it does no such thing, or nobody knows how."""

    thinking: ThinkingFormat | None = None
    tools: ToolFormat | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        thinking = (self.thinking.opens, self.thinking.closes) if self.thinking is not None else ()
        return (*thinking, *(self.tools.markers if self.tools is not None else ()))


NO_FORMATS = Formats()

THINKING = {
    one.name: one
    for one in (
        ThinkingFormat("think", "<think>", "</think>"),
        ThinkingFormat("mistral", "[THINK]", "[/THINK]"),
    )
}

TOOLS = {
    one.name: one
    for one in (
        ToolFormat("hermes", "json", ("<tool_call>",), ends=("</tool_call>",)),
        ToolFormat("qwen3_coder", "xml", ("<tool_call>", "<function="), ends=("</tool_call>",)),
        ToolFormat("llama3_json", "json", ("<|python_tag|>",), bare="{", ends=(";",)),
        ToolFormat("mistral", "mistral", ("[TOOL_CALLS]",), inner=("[ARGS]", "[CALL_ID]"), id_length=9, id_prefix=""),
    )
}
