"""What a chat template is given beside the messages. Plain data, without the template's own language."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a template is given beside the messages: plain JSON values."""

    tools: tuple[Mapping[str, Any], ...] = ()  # as in OpenAI's API; a template sees None where there are none
    settings: Mapping[str, Any] = field(default_factory=dict)  # variables of its own, by name


NOTHING = Inputs()
