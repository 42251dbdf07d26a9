"""The page is served to those who may see it; viewers share one snapshot, and one who stops reading costs nothing."""

import asyncio
import hashlib
import json
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goodspeed.serving.api_keys import Keys
from goodspeed.serving.web.guards import KeyCheck
from goodspeed.serving.web.server import serve
from tests.listening import listen
from tests.verify_node.loops import served
from tests.verify_node.watch.page.snapshots import EMPTY, make_app, take
from verify_node.watch import app as page_app
from verify_node.watch.app import FILES, MAX_VIEWERS, PAGE, Feed

KEYS = Keys(["first-key"])
OURS = [file.name for file in PAGE.iterdir() if file.is_file()]
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "javascript", ".svg": "image/svg+xml", ".md": "text/"}


def read(name: str) -> str:
    return (PAGE / name).read_text("utf-8")


def paths() -> list[str]:
    return [route.path for route in make_app().routes if isinstance(route, Route)]


# -- routes --------------------------------------------------------------------------------------------------------


def test_every_file_is_served_as_what_it_is() -> None:
    client = TestClient(make_app())
    for path, file in FILES.items():
        answer = client.get(path)
        assert (answer.status_code, answer.content) == (200, file.read_bytes())
        assert MEDIA_TYPES[file.suffix] in answer.headers["content-type"]


def test_health_ready_metrics_and_the_newest_events_by_session() -> None:
    client = TestClient(make_app())
    assert client.get("/health").json() == client.get("/ready").json() == {"status": "ok"}
    assert client.get("/metrics").text == "goodspeed_up 1\n"
    assert client.get("/debug").json() == {"stories": {"01": ["a line"]}}


def test_who_asks_for_a_text_is_told_who_writes_texts() -> None:
    client = TestClient(make_app())
    answer = client.post("/v1/chat/completions", json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (404, "not_found", "invalid_request_error")
    assert "goodspeed-draft --model MODEL --verify" in error["message"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    by_messages = client.post("/v1/messages", json={}).json()
    assert by_messages == {"type": "error", "error": {"type": "not_found_error", "message": error["message"]}}
    assert client.get("/nothing").json()["error"]["message"] == "there is nothing at /nothing"


def test_a_node_that_stops_is_alive_and_not_ready() -> None:
    stopping = iter((False, True))
    client = TestClient(make_app(is_ready=lambda: not next(stopping)))
    assert client.get("/ready").status_code == 200
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(method: str) -> None:
    client = TestClient(make_app())
    for path in paths():
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert answer.json()["error"]["message"] == f"{method} {path} is not served; use GET"


def test_a_failure_is_answered_like_every_error() -> None:
    client = TestClient(make_app(is_ready=lambda: bool(1 // 0)), raise_server_exceptions=False)
    answer = client.get("/ready")
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (500, "nosniff")
    error = answer.json()["error"]
    assert (error["type"], error["code"], "log says why" in error["message"]) == ("server_error", "internal", True)


def test_every_answer_tells_the_browser_to_be_careful() -> None:
    client = TestClient(make_app())
    for path in ["/health", "/metrics", "/nothing-there", *FILES]:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_every_route_but_health_and_ready_needs_the_key() -> None:
    client = TestClient(KeyCheck(make_app(), KEYS, "a node"))
    assert {"/", "/events", "/debug", "/metrics", "/window.js"} < set(paths())
    for path in paths():
        assert client.get(path).status_code == (200 if path in ("/health", "/ready") else 401), path
    assert client.get("/", auth=("anybody", "first-key")).status_code == 200
    assert client.get("/metrics", headers={"Authorization": "Bearer first-key"}).status_code == 200
    assert client.get("/").headers["www-authenticate"].startswith('Basic realm="a node"')


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_page_asks_nobody_else_and_what_it_asks_for_is_served() -> None:
    wanted = set(re.findall(r'(?:src|href)="([^"#]+)"', read("index.html")))
    imported = set(re.findall(r'from "\./([^"]+)"', "".join(map(read, OURS))))
    assert {f"/{name}" for name in wanted | imported} <= {*paths()}
    for name in OURS:
        assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)[\w.]+\.\w", _without_comments(read(name))), name
        assert not re.search(r"url\(|@import|fetch\(|WebSocket", read(name)), name
    links = set(re.findall(r'<a href="(\w+)">', read("index.html")))
    assert links == {path.strip("/") for path in paths()} - {"events"} - {name.strip("/") for name in FILES}


def test_the_page_has_no_inline_script_or_style_and_names_from_the_network_cannot_become_markup() -> None:
    page = read("index.html")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|javascript:", page)
    scripts = "".join(read(name) for name in OURS if name.endswith(".js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function\(|DOMParser", scripts)


def test_all_of_the_page_is_in_a_wheel_with_the_library_that_its_readme_names() -> None:
    project = tomllib.loads((Path(page_app.__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["verify_node.watch"]
    packed = {file for pattern in patterns for file in PAGE.parent.glob(pattern)}
    assert {*FILES.values(), PAGE / "uplot" / "LICENSE"} <= packed
    digests = re.findall(r"\| (\S+) \| ([0-9a-f]{64}) \|", read("uplot/README.md"))
    assert len(digests) == 3
    for name, digest in digests:
        assert hashlib.sha256((PAGE / "uplot" / name).read_bytes()).hexdigest() == digest


def _without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$|/\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)


# -- the feed ------------------------------------------------------------------------------------------------------


@served
async def test_one_snapshot_serves_all_viewers_and_none_is_made_unwatched() -> None:
    clock, taking = Mock(return_value=0.0), Mock(side_effect=take)
    feed = Feed(taking, clock)
    viewers = [feed.events() for _ in range(5)]
    for viewer in viewers:
        assert await anext(viewer) == page_app.RETRY
    first = {await anext(viewer) for viewer in viewers}
    assert len(first) == taking.call_count == 1
    assert feed.num_viewers == 5
    clock.return_value = 1.0
    assert {await anext(viewer) for viewer in viewers}.isdisjoint(first)
    assert taking.call_count == 2
    for viewer in viewers:
        await viewer.aclose()
    assert feed.num_viewers == 0


@served
async def test_the_feed_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_app, "PERIOD_S", 3600.0)
    feed = Feed(take, lambda: 0.0)
    viewer = feed.events()
    await anext(viewer), await anext(viewer)
    feed.end()
    assert [event async for event in viewer] == []


def test_more_viewers_than_there_is_room_for_are_refused() -> None:
    feed = Feed(take, lambda: 0.0)
    feed.num_viewers = MAX_VIEWERS
    feed.end()  # whoever was let in would be sent away at once
    answer = TestClient(make_app(feed)).get("/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


@served
async def test_of_viewers_who_come_at_the_same_time_no_more_are_served_than_there_is_room_for() -> None:
    """All were answered before the first one's events began."""
    feed = Feed(take, lambda: 0.0)
    viewers = [feed.events() for _ in range(MAX_VIEWERS + 2)]
    begun = [await anext(viewer, None) for viewer in viewers]
    assert begun == [page_app.RETRY] * MAX_VIEWERS + [None] * 2
    assert feed.num_viewers == MAX_VIEWERS
    await viewers[0].aclose()
    assert await anext(feed.events()) == page_app.RETRY


def test_head_does_not_wait_for_events() -> None:
    never = Mock(side_effect=AssertionError("a snapshot was made"))
    answer = TestClient(make_app(Feed(never, lambda: 0.0))).head("/events")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")


# -- over real sockets ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_sockets(app: ASGIApp) -> AsyncIterator[tuple[str, int]]:
    """Serves it; gives its address."""
    listener = listen()
    serving = asyncio.create_task(serve(app, listener))
    try:
        yield listener.getsockname()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def view(address: tuple[str, int], viewer: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
    writer.write(f"GET /events?{viewer} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return reader, writer


async def next_snapshot(reader: asyncio.StreamReader) -> dict[str, Any]:
    while not (line := await reader.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    return dict(json.loads(line.removeprefix(b"data: ")))


@served
async def test_a_viewer_who_leaves_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_app, "PERIOD_S", 0.01)
    feed = Feed(take, lambda: 0.0)
    async with over_sockets(make_app(feed)) as address:
        reader, writer = await view(address)
        assert (await next_snapshot(reader))["node"]["model"] == "tiny-target"
        assert feed.num_viewers == 1
        writer.close()
        while feed.num_viewers:
            await asyncio.sleep(0)
        feed.end()


@served
async def test_a_viewer_who_stops_reading_is_sent_a_bounded_number_of_snapshots(monkeypatch: Any) -> None:
    monkeypatch.setattr(page_app, "PERIOD_S", 0.001)
    large = replace(EMPTY, node=replace(EMPTY.node, model="x" * 250_000))
    feed = Feed(lambda now: large, lambda: 0.0)
    sent = {b"good": 0, b"stuck": 0}

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            await send(message)
            sent[scope["query_string"]] += len(message.get("body", b""))

        await make_app(feed)(scope, receive, count)

    async with over_sockets(counted) as address:
        _, stuck = await view(address, "stuck")
        stuck.transport.pause_reading()  # type: ignore[attr-defined]
        reader, writer = await view(address, "good")
        while sent[b"good"] < 50_000_000:
            await next_snapshot(reader)
        assert 0 < sent[b"stuck"] < 20_000_000
        assert feed.num_viewers == 2
        stuck.transport.abort()
        writer.close()
        feed.end()
