"""The state of a demo, accumulated from the nodes' events.

Draft nodes report the tokens that their users got; the verify node reports its rounds.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from goodspeed.app.demo.options import Client, DemoConfig
from goodspeed.errors import ProcessError
from goodspeed.serving.measuring.recording import VERSION, AnyLine, Header, Opened, Recording, Round

INITIAL_GOODPUT = 1.0
"""Goodput estimate of a client before its first round: that of plain decoding."""

FINISH = (
    *("text", "token_ids", "finish_reason", "elapsed_s", "slo"),
    *("num_tokens", "num_rounds", "num_drafted", "num_accepted"),
)
"""Fields of `Progress` that a text's last event has."""


@dataclass
class Progress:
    """One client's text and counts so far."""

    client: Client
    may_draft: int = 0  # S: permission in tokens
    num_tokens: int = 0
    num_rounds: int = 0  # rounds that committed tokens
    num_drafted: int = 0
    num_accepted: int = 0
    drafted_by: dict[str, int] = field(default_factory=dict)  # num_drafted by source, from the draft node
    accepted_by: dict[str, int] = field(default_factory=dict)  # num_accepted by source, likewise
    first_round: int = 0
    last_round: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""  # empty: not finished
    elapsed_s: float = 0.0  # from the prompt to the latest token
    slo: dict[str, Any] | None = None  # result of the requested service level, at the end

    @property
    def draft_acceptance_rate(self) -> float:
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def num_rounds_passed(self) -> int:
        """Verify rounds from the client's first tokens to its latest, including those missed while drafting."""
        return self.last_round - self.first_round + 1 if self.num_rounds else 0

    @property
    def goodput(self) -> float:
        """Tokens per passed round; below 1 only if the client missed rounds, since each other round gives a token."""
        return self.num_tokens / self.num_rounds_passed if self.num_rounds else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.elapsed_s if self.elapsed_s else 0.0


@dataclass
class DemoState:
    """The state of all clients and of the verify node in one run."""

    progress: dict[str, Progress]  # by client name
    num_rounds: int = 0
    num_reported: int = 0  # tokens in the rounds so far
    wall_s: dict[str, float] = field(default_factory=dict)
    uplink_bytes: int = 0  # bytes of messages with drafted tokens
    policy_error: str | None = None  # latest failure of a user's own policy
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (round, goodput estimate by client)
    started_s: float = 0.0
    finished_s: float = 0.0
    is_over: bool = False  # later requests are not part of this run
    alone: "DemoState | None" = None  # the same texts by the target without drafts
    sessions: list[Opened] = field(default_factory=list)  # these two with --record
    rounds: list[Round] = field(default_factory=list)
    _idle_s: float = 0.0  # the verify node's wait for the first prompt

    @classmethod
    def of(cls, clients: list[Client]) -> "DemoState":
        return cls({client.name: Progress(client) for client in clients})

    @property
    def elapsed_s(self) -> float:
        return max(0.0, self.finished_s - self.started_s)

    @property
    def num_tokens(self) -> int:
        return sum(one.num_tokens for one in self.progress.values())

    def start(self, now: float) -> None:
        """Records the time at which all clients get their prompts."""
        self.started_s = self.finished_s = now

    def apply_verify(self, event: dict[str, Any]) -> None:
        """Applies an event of the verify node: a round, the totals at the end, or a line of the recording.

        ProcessError if events were dropped.
        """
        kind = event["event"]
        if kind == "stopped":
            self.policy_error = event["policy_error"]
        if self.is_over:
            return
        if kind == "dropped":
            raise ProcessError("this demo read the verify node's events too slowly, so that the recording has gaps")
        if kind == "recorded":
            line: AnyLine = msgspec.convert(event["line"], AnyLine)
            if isinstance(line, Opened):
                self.sessions.append(msgspec.structs.replace(line, domain=self.progress[line.client].client.domain))
            else:
                self.rounds.append(line)
        if kind == "round":
            if not self.wall_s:
                self._idle_s = event["wall_s"]["receive"]
            self.num_rounds = event["number"]
            self.num_reported += sum(row["num_tokens"] for row in event["sessions"])
            for row in event["sessions"]:
                self._count(event["number"], row)
            self.history.append((event["number"], {row["client"]: row["goodput"] for row in event["sessions"]}))
        if kind in ("round", "stopped"):
            self.uplink_bytes = event["uplink_bytes"]
            self.wall_s = {**event["wall_s"], "receive": event["wall_s"]["receive"] - self._idle_s}

    def apply_draft(self, name: str, event: dict[str, Any], now: float) -> None:
        """Applies an event of a draft node: new tokens, or the text's end."""
        one = self.progress[name]
        if event["event"] == "tokens":
            one.text += event["text"]
            one.token_ids += event["token_ids"]
            one.drafted_by, one.accepted_by = event["drafted"], event["accepted"]
            one.elapsed_s = now - self.started_s
        elif event["event"] == "finish":
            for key in FINISH:
                setattr(one, key, event[key])
            one.drafted_by, one.accepted_by = event["drafted"], event["accepted"]
            self.finished_s = now

    def recording(self, config: DemoConfig, versions: dict[str, str]) -> Recording:
        """Returns the recording of all events so far. versions: of libraries."""
        shared = {name: getattr(config, name) for name in Header.__struct_fields__ if hasattr(config, name)}
        header = Header(version=VERSION, versions=versions, **shared | {"model": config.model_name})
        return Recording(header, tuple(self.sessions), tuple(self.rounds))

    def _count(self, number: int, row: dict[str, Any]) -> None:
        one = self.progress[row["client"]]
        one.first_round = one.first_round or number
        one.last_round = number
        one.may_draft = row["may_draft"]
        if not one.finish_reason:  # else the draft node's final counts are known
            one.num_rounds += 1
            one.num_tokens += row["num_tokens"]
            one.num_drafted += row["num_verified"]
            one.num_accepted += row["num_accepted"]
