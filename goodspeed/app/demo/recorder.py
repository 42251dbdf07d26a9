"""Collects the verify node's recorded events into a recording, and adds the demo's domains and settings."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.app.demo.summary import versions
from goodspeed.errors import ProcessError
from goodspeed.serving.recording import VERSION, AnyLine, Header, Opened, Recording, Round


@dataclass
class DemoRecorder:
    """Collects the events of one run."""

    domains: dict[str, str]  # by client name
    sessions: list[Opened] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    @classmethod
    def of(cls, clients: list[Client]) -> "DemoRecorder":
        return cls({client.name: client.domain for client in clients})

    def apply_verify(self, event: dict[str, Any]) -> None:
        """Applies an event of the verify node."""
        if event["event"] == "dropped":
            raise ProcessError("this demo read the verify node's events too slowly, so that the recording has gaps")
        if event["event"] != "recorded":
            return
        line: AnyLine = msgspec.convert(event["line"], AnyLine)
        if isinstance(line, Opened):
            self.sessions.append(msgspec.structs.replace(line, domain=self.domains[line.client]))
        else:
            self.rounds.append(line)

    def recording(self, config: DemoConfig) -> Recording:
        """Returns the recording of all events so far."""
        shared = {name: getattr(config, name) for name in Header.__struct_fields__ if hasattr(config, name)}
        header = Header(version=VERSION, versions=versions(), **shared)
        return Recording(header, tuple(self.sessions), tuple(self.rounds))
