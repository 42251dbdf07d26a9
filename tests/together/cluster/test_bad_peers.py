"""A real process refuses peers' errors on the wire by name, and an honest client notices nothing."""

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import pytest
import zmq

from draft_node import assembly
from draft_node.config import DraftConfig
from draft_node.core.actions import Finish
from goodspeed.exact import proposals
from goodspeed.wire.fields import Message
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import Ack, Close, DownMessage, Draft, OpenSession, Refusal, Sampling, Verdict
from goodspeed.wire.zmq.transport import connect_draft
from tests.nodes import VerifyNode
from tests.together.cluster.cluster import Cluster, Served, alone, load, make_request, prompt_ids

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

    def hello(self, tokenizer: str | None = None) -> Hello:
        mine = load("tiny-target").tokenizer_fingerprint
        return Hello(VERSION, "hostile", secrets.token_bytes(8), tokenizer or mine, draft_model="rubbish")


@contextmanager
def peer(cluster: VerifyNode, *, welcome: bool = True) -> Iterator[Peer]:
    with zmq.Context() as context:
        hostile = Peer(cluster.endpoint, context)
        try:
            if welcome:
                hostile.say(hostile.hello())
                hostile.hear(Welcome)
            yield hostile
        finally:
            hostile.socket.close()


def open_message(**fields: object) -> OpenSession:
    values = {
        "session_id": secrets.token_bytes(16),
        "epoch": 1,
        "prompt": prompt_ids(0),
        "committed": (),
        "sampling": Sampling(seed=1),
        "max_tokens": 50,
    }
    return OpenSession(**{**values, **fields})  # type: ignore[arg-type]


def draft_message(opened: OpenSession, verdict: Verdict, **fields: object) -> Draft:
    """An honest draft, but for the fields given."""
    text = (*opened.prompt, *verdict.tokens)
    values = {
        "session_id": opened.session_id,
        "epoch": opened.epoch,
        "base_len": len(text),
        "tokens": (5,),
        "complete": True,
    }
    return Draft(**{**values, **fields})  # type: ignore[arg-type]


def opened_session(hostile: Peer, **fields: object) -> tuple[OpenSession, Verdict]:
    opened = open_message(**fields)
    hostile.say(opened)
    verdict = hostile.hear(Verdict)
    assert verdict.session_id == opened.session_id
    assert verdict.may_draft > 0
    return opened, verdict


def test_every_handshake_that_cannot_be(verify: VerifyNode) -> None:
    with peer(verify, welcome=False) as hostile:
        assert hostile.refusal(open_message()).code == "hello_first"
        assert hostile.refusal(hostile.hello(tokenizer="another")).code == "tokenizer"
        assert hostile.refusal(msgspec.msgpack.encode(["hello", VERSION + 1, "from the future"])).code == "version"


def test_malformed_and_oversized_bytes(verify: VerifyNode) -> None:
    with peer(verify) as hostile:
        for data in (b"", b"\xc1", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", msgspec.msgpack.encode({"draft": 1})):
            assert hostile.refusal(data).code == "malformed"
        hostile.say(hostile.hello())
        assert hostile.refusal(b"\xc4" * (hostile.hear(Welcome).max_message_bytes + 1)).code == "too_large"


def test_prompts_that_cannot_be_served(verify: VerifyNode) -> None:
    with peer(verify) as hostile:
        assert hostile.refusal(open_message(prompt=())).code == "prompt"
        assert hostile.refusal(open_message(prompt=(1,) * 2048)).code == "prompt"
        assert hostile.refusal(open_message(prompt=(1, 1 << 20))).code == "vocabulary"


def test_drafts_that_cannot_be_verified(verify: VerifyNode) -> None:
    with peer(verify) as hostile:
        opened, verdict = opened_session(hostile)
        wrong: dict[str, Draft] = {
            "unknown_session": draft_message(opened, verdict, session_id=secrets.token_bytes(16)),
            "stale_epoch": draft_message(opened, verdict, epoch=0),
            "wrong_base": draft_message(opened, verdict, base_len=10_000),
            "vocabulary": draft_message(opened, verdict, tokens=(1 << 20,)),
        }
        for code, draft in wrong.items():
            refused = hostile.refusal(draft)
            assert refused.code == code
            assert (refused.session_id, refused.epoch) == (draft.session_id, draft.epoch)
        hostile.say(draft_message(opened, verdict))  # after all that, an honest one is taken
        hostile.hear(Verdict)
        assert hostile.refusal(Ack(opened.session_id, opened.epoch, 10_000)).code == "wrong_base"
        hostile.say(Close(opened.session_id, opened.epoch))


def test_probabilities_that_do_not_add_up(verify: VerifyNode) -> None:
    """Such a draft costs its session the draft: it is refused by name, and the session goes on by one token."""
    half = b"\x00\x00\x00\x3f"  # 0.5 in fp32
    header = b"\x01" + (2).to_bytes(4, "little")  # dense fp32, two entries
    two = b"\x00\x00\x00\x40"
    wrong = {"ends after 0 of 1": b"", "sum to 2.5": header + half + two, "takes? 13": header + half * 3}
    with peer(verify) as hostile:
        opened, verdict = opened_session(hostile, verification="ratio")
        text = [*opened.prompt, *verdict.tokens]
        assert hostile.refusal(draft_message(opened, verdict)).what == "a draft under ratio has no proposal"
        for what, proposal in wrong.items():
            base: dict[str, object] = {"base_len": len(text), "tokens": (1,)}
            refused = hostile.refusal(draft_message(opened, verdict, proposal=proposal, **base))
            assert refused.code == "proposal"
            assert re.search(what, refused.what)
            answer = hostile.hear(Verdict)
            assert (answer.num_verified, len(answer.tokens)) == (0, 1)
            text += answer.tokens
        assert proposals.decode(header + half + half, 1, 4096).sum() == 1  # what would have been right
        hostile.say(Close(opened.session_id, opened.epoch))


def test_an_honest_client_notices_nothing(verify: VerifyNode) -> None:
    """An honest session runs while a hostile peer sends rubbish without pause; its text is the target's own."""
    request = make_request(prompt_ids(2), 40, temperature=1.0, seed=7)
    config = DraftConfig(model="tiny-draft-s", verify=(verify.endpoint,), name="honest")
    boot_id = secrets.token_bytes(8)
    daemon = assembly.build(config, load(config.model), connect_draft(config.verify[0]), boot_id)

    async def live(hostile: Peer) -> Served:
        serving = asyncio.create_task(daemon.serve())
        using = asyncio.create_task(Cluster.use(daemon, request))
        num_sent = 0
        while not using.done():  # a burst goes out before the first word of the honest one
            for _ in range(50 if num_sent < 5000 else 0):
                hostile.say(b"\xc1" * 20)
                hostile.say(Ack(secrets.token_bytes(16), 1, 1))
                num_sent += 2
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return using.result()

    with peer(verify) as hostile:
        served = asyncio.run(asyncio.wait_for(live(hostile), timeout=60))
        codes = {hostile.refusal(b"\xc1").code for _ in range(2)}
    assert codes == {"malformed", "unknown_session"}  # to the first burst
    assert isinstance(served.end, Finish)
    assert served.tokens == alone(request.prompt, request.sampling, request.max_tokens)
