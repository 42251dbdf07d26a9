"""A real process refuses malformed bytes and proposals by name.

`tests/fuzz/test_live.py` sees its other refusals, and the texts of honest clients beside somebody who earns them.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import pytest
import zmq
from msgspec.structs import replace

from goodspeed.exact import proposals
from goodspeed.wire.fields import Message
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import Close, DownMessage, Draft, OpenSession, Refusal, Sampling, Verdict
from tests.nodes import VerifyNode
from tests.together.cluster.cluster import load, prompt_ids

pytestmark = pytest.mark.nodes

ANSWER_TIMEOUT_MS = 30_000

Heard = TypeVar("Heard", bound=Message)


class Peer:
    """A raw socket that says what it likes, and reads what comes back."""

    def __init__(self, endpoint: str, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(endpoint)
        self._decoder = msgspec.msgpack.Decoder(DownMessage)

    def say(self, message: Message | bytes) -> None:
        self.socket.send(message if isinstance(message, bytes) else msgspec.msgpack.encode(message))

    def hear(self, kind: type[Heard]) -> Heard:
        """The next message of that kind; heartbeats and the like are passed over."""
        while self.socket.poll(ANSWER_TIMEOUT_MS):
            message = self._decoder.decode(self.socket.recv())
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__} came")

    def refusal(self, message: Message | bytes) -> Refusal:
        self.say(message)
        answer = self.hear(Refusal)
        assert answer.what
        assert answer.what_to_do
        return answer

    def hello(self) -> Hello:
        tokenizer = load("tiny-target").tokenizer_fingerprint
        return Hello(VERSION, "hostile", secrets.token_bytes(8), tokenizer, draft_model="rubbish")


@contextmanager
def peer(cluster: VerifyNode) -> Iterator[Peer]:
    with zmq.Context() as context:
        hostile = Peer(cluster.endpoint, context)
        try:
            hostile.say(hostile.hello())
            hostile.hear(Welcome)
            yield hostile
        finally:
            hostile.socket.close()


def test_malformed_and_oversized_bytes(verify: VerifyNode) -> None:
    with peer(verify) as hostile:
        for data in (b"", b"\xc1", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", msgspec.msgpack.encode({"draft": 1})):
            assert hostile.refusal(data).code == "malformed"
        hostile.say(hostile.hello())
        assert hostile.refusal(b"\xc4" * (hostile.hear(Welcome).max_message_bytes + 1)).code == "too_large"


def test_probabilities_that_do_not_add_up(verify: VerifyNode) -> None:
    """Such a draft costs its session the draft: it is refused by name, and the session goes on by one token."""
    half = b"\x00\x00\x00\x3f"  # 0.5 in fp32
    header = b"\x01" + (2).to_bytes(4, "little")  # dense fp32, two entries
    two = b"\x00\x00\x00\x40"
    wrong = {"ends after 0 of 1": b"", "sum to 2.5": header + half + two, "takes? 13": header + half * 3}
    opened = OpenSession(secrets.token_bytes(16), 1, prompt_ids(0), (), Sampling(seed=1), 50, verification="ratio")
    with peer(verify) as hostile:
        hostile.say(opened)
        text = [*opened.prompt, *hostile.hear(Verdict).tokens]
        draft = Draft(opened.session_id, 1, len(text), (1,), complete=True)
        assert hostile.refusal(draft).what == "a draft under ratio has no proposal"
        for what, proposal in wrong.items():
            refused = hostile.refusal(replace(draft, base_len=len(text), proposal=proposal))
            assert refused.code == "proposal"
            assert re.search(what, refused.what)
            answer = hostile.hear(Verdict)
            assert (answer.num_verified, len(answer.tokens)) == (0, 1)
            text += answer.tokens
        assert proposals.decode(header + half + half, 1, 4096).sum() == 1  # what would have been right
        hostile.say(Close(opened.session_id, opened.epoch))
