"""A verify node that loads its model says so to draft nodes and over HTTP, and frees the address at the end."""

import asyncio
from collections.abc import Iterator

import pytest
from httpx2 import Client

from goodspeed.errors import TransportError
from goodspeed.serving.web import start_listening
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.messages import Refusal
from goodspeed.wire.zmq.authentication import ClientKeys, ServerKeys, new_pair
from goodspeed.wire.zmq.opening_channels import bind_verify, connect_draft
from tests.fakes import make_hello
from tests.listening import listen
from tests.waiting import run_async
from verify_node.config import VerifyConfig
from verify_node.process.loading import answering
from verify_node.process.preflight import Found, check_settings

pytestmark = pytest.mark.nodes

NOTHING = Found(None, None, None)


def config(bind: str = "tcp://127.0.0.1:0", http: str | None = None) -> VerifyConfig:
    return VerifyConfig(model="tiny-target", bind=bind, http=http)


def free_endpoint() -> str:
    with listen() as free:
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def found() -> Iterator[Found]:
    found = check_settings(config(http="127.0.0.1:0"))
    assert found.http is not None
    with found.http.listener:
        yield found


async def refused(endpoint: str, keys: ClientKeys | None = None) -> Refusal:
    """Returns the answer to a Hello."""
    channel = connect_draft(endpoint, keys=keys)
    try:
        async with asyncio.timeout(30):
            await channel.send(Heartbeat(b"abcdefgh"))  # not answered
            await channel.send(make_hello())
            answer = await channel.receive()
            assert isinstance(answer, Refusal)
            return answer
    finally:
        channel.close()


@run_async
async def test_draft_nodes_are_told_and_the_address_is_free_at_the_end() -> None:
    bind = free_endpoint()
    with answering(config(bind=bind), check_settings(config())) as vacate:
        assert (await refused(bind)).code == "loading"
        with (
            pytest.raises(TransportError, match="another program listens there"),
            answering(config(bind=bind), NOTHING),
        ):
            pass
        assert vacate() == bind
        verify = bind_verify(bind)
        verify.close()
        assert vacate() == verify.endpoint


@run_async
async def test_with_keys_only_enrolled_ones_are_told() -> None:
    pair, draft = new_pair(), new_pair("a")
    keys = ServerKeys(pair, lambda key: key == draft.public_key)
    bind = free_endpoint()
    with answering(config(bind=bind), Found(keys, None, None)):
        assert (await refused(bind, ClientKeys(draft, pair.public_key))).code == "loading"


def test_over_http_it_lives_and_is_not_ready(found: Found) -> None:
    assert found.http is not None
    host, port = found.http.listener.getsockname()
    with Client(base_url=f"http://{host}:{port}", timeout=30) as client:
        with answering(config(), found):
            alive = client.get("/health")
            assert (alive.status_code, alive.headers["connection"]) == (200, "close")
            for path in ("/ready", "/", "/metrics"):
                answer = client.get(path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "loading")
                assert answer.headers["retry-after"]
            assert client.get("/", headers={"Host": "elsewhere"}).status_code == 421
        start_listening(found.http.listener)  # the page's server takes the same socket
