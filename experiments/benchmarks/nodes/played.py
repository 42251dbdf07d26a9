"""Nodes without their processes: a verify node that runs when it is told to, and draft nodes that only look drafts up.

The core, the target and the draft nodes' sessions are the real ones. Under the match rule a draft is a function of the
text, the seed and the draft model, so drafts may be made beforehand (`oracle.py`) or once (`recorded.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from draft_node.core.actions import Action, Send
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.engine.engine import Checkpoint
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import DownMessage, Refusal, UpMessage, Verdict
from goodspeed.wire.zmq.transport import bind_verify
from verify_node.config import VerifyConfig
from verify_node.process.assembly import build, make_runner, make_welcome
from verify_node.process.daemon import VerifyDaemon

HEARTBEAT_S = 60.0  # played clients send none, and may be silent while one of them makes a draft anew


def make_daemon(checkpoint: Checkpoint, budget: int, kv_pages: int, **options: Any) -> VerifyDaemon:
    """Creates a verify node on a free port with the paper's rounds, which always spend the budget."""
    config = VerifyConfig(
        model=checkpoint.name, budget=budget, preset="paper", kv_pages=kv_pages, heartbeat_s=HEARTBEAT_S, **options
    )
    welcome = make_welcome(config, checkpoint)
    channel = bind_verify("tcp://127.0.0.1:*", max_message_bytes=welcome.max_message_bytes)
    return build(config, make_runner(config, checkpoint), channel, welcome, EventLog(enabled=False), Refined())


@dataclass
class Client:
    """One draft node with one session."""

    hello: Hello
    session: Session
    draft: Callable[[Propose], tuple[int, ...]]

    @classmethod
    def of(
        cls, name: str, number: int, tokenizer: str, request: Generation, draft: Callable[[Propose], tuple[int, ...]]
    ) -> "Client":
        return cls(Hello(VERSION, name, number.to_bytes(8, "little"), tokenizer), Session(request), draft)

    def greet(self, welcome: Welcome) -> list[UpMessage]:
        return [self.hello, *self.send(self.session.connect(0.0, welcome))]

    def hear(self, message: DownMessage) -> list[Action]:
        """Handles a message from the verify node."""
        if isinstance(message, Refusal):
            raise RuntimeError(f"{self.hello.name} was refused: {message.what}")
        return self.session.receive(message, 0.0) if isinstance(message, Verdict) else []

    def send(self, actions: Iterable[Action]) -> list[UpMessage]:
        """Returns the messages to send, with a proposal for every request."""
        sent: list[UpMessage] = []
        for action in actions:
            if isinstance(action, Send):
                sent.append(action.message)
            elif isinstance(action, Propose) and action.length:
                proposed = Proposed(action.request.session_id, action.epoch, action.round, self.draft(action))
                sent += self.send(self.session.proposed(proposed))
        return sent
