"""`goodspeed chat` against a node that says what it is told to: what is shown, what is asked, what goes wrong."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from goodspeed.app import cli
from goodspeed.app.chat.options import KEY_VARIABLE
from tests.app.chat.stub import FRAME, LAST, USAGE, Stub, chunk, event, serving

Talk = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    for name in (KEY_VARIABLE, "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with serving() as stub:
        yield stub


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on the command believes that it writes to a terminal with colours."""

    def show() -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")

    return show


@pytest.fixture
def talk(stub: Stub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """The command with these lines as standard input: exit status, standard output, standard error."""

    def talk(lines: str, *words: str, url: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["goodspeed", "chat", "--url", url or stub.url, *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        status = cli.main()
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return talk


def test_each_line_is_a_turn_of_one_conversation(stub: Stub, talk: Talk) -> None:
    assert talk(" \n\n") == (0, "", "")
    assert not stub.asked
    status, out, err = talk("one\n\ntwo\n", "--system", "be kind")
    assert (status, out) == (0, "Hello\nHello\n")
    first, second = (line.strip("[]").split(", ") for line in err.splitlines())
    assert (first[0], first[3:]) == ("5 tokens", ["75% of drafted tokens accepted", "2 rounds"])
    assert first[1].endswith("tokens/s")
    assert first[2].startswith("the first after ")
    assert second[3:] == first[3:]
    assert [message["content"] for message in stub.asked[0]["messages"]] == ["be kind", "one"]
    roles = [(message["role"], message["content"]) for message in stub.asked[1]["messages"]]
    assert roles == [("system", "be kind"), ("user", "one"), ("assistant", "Hello"), ("user", "two")]


def test_only_what_is_set_is_sent(stub: Stub, talk: Talk) -> None:
    talk("hi", url=f"{stub.url}/v1/")
    plain = {"model": "first", "stream": True, "stream_options": {"include_usage": True}}
    assert stub.asked[-1] == {**plain, "messages": [{"role": "user", "content": "hi"}]}
    sampling = {"max_tokens": 9, "temperature": 0.5, "seed": 3}
    words = [word for name, value in sampling.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    talk("hi", *words, "--model", "second", "--no-speculate", "--tier", "fast")
    extension = {"speculate": False, "slo": "fast"}
    assert stub.asked[-1].pop("messages")
    assert stub.asked[-1] == {**plain, **sampling, "model": "second", "goodspeed": extension}


def test_events_and_the_result_last(stub: Stub, talk: Talk) -> None:
    stub.body = chunk("Hello") + chunk(None, "length") + LAST
    status, out, err = talk("hi\n", "--json")
    ready, text, answer, result = map(json.loads, out.splitlines())
    assert (status, err) == (0, "")
    assert ready == {"event": "ready", "url": stub.url, "model": "first"}
    assert text == {"event": "text", "turn": 0, "text": "Hello"}
    assert (answer.pop("event"), answer.pop("turn")) == ("answer", 0)
    assert result["answers"] == [answer]
    assert result["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}]
    assert answer["finish_reason"] == "length"
    assert [answer[name] for name in ("num_tokens", "num_rounds", "num_drafted", "num_accepted")] == [5, 2, 4, 3]
    assert answer["draft_acceptance_rate"] == 0.75


def test_what_the_model_thinks_is_dimmed_and_not_sent_back(stub: Stub, talk: Talk, colours: Callable[[], None]) -> None:
    thoughts = [chunk(delta={"reasoning_content": text}) for text in ("h", "m\x1b")]
    stub.body = b"".join(thoughts) + chunk("Hel") + chunk("lo") + LAST
    _, out, err = talk("one\ntwo\n")
    assert out == "Hello\nHello\n"
    assert err.startswith("hm\\x1b\n\n[5 tokens")
    assert [message["content"] for message in stub.asked[-1]["messages"]] == ["one", "Hello", "two"]
    events = list(map(json.loads, talk("hi\n", "--json")[1].splitlines()))
    assert [one["text"] for one in events if one.get("event") == "thinking"] == ["h", "m\x1b"]
    assert events[-1]["answers"][0]["text"] == "Hello"
    colours()
    assert talk("hi")[2].startswith("\x1b[2mh\x1b[0m")


def test_nothing_that_a_terminal_obeys_is_shown(stub: Stub, talk: Talk) -> None:
    stub.body = chunk("a\x1b[2J\x9b1m\r\x07\u202eb\u2028\tc\n日本 é") + chunk(None, "stop") + LAST
    _, out, _ = talk("hi")
    assert out == "a\\x1b[2J\\x9b1m\\r\\x07\\u202eb\\u2028\tc\n日本 é\n"
    stub.refuse(400, "no\x1b[2J\nnot so")
    assert talk("hi") == (1, "", f"goodspeed: {stub.url} answered 400: no\\x1b[2J not so\n")


def test_a_node_that_tells_no_usage(stub: Stub, talk: Talk) -> None:
    stub.body = chunk("Hello") + chunk(None, "stop") + b": a comment\n\ndata: [DONE]\n\n"
    status, out, err = talk("hi")
    assert (status, out) == (0, "Hello\n")
    assert err.startswith("[the first after ")


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {}, " answered 401: it is so; name a file with a key by --api-key FILE, or set GOODSPEED_API_KEY"),
        (404, {}, " answered 404: it is so"),
        (429, {"Retry_After": "7"}, " answered 429: it is so (try again in 7 s)"),
        (503, {"Retry_After": "5"}, " answered 503: it is so (try again in 5 s)"),
        (503, {"Retry_After": "\x1b"}, " answered 503: it is so"),
    ],
)
def test_a_refusal_is_one_line(stub: Stub, talk: Talk, status: int, headers: dict[str, str], said: str) -> None:
    stub.refuse(status, "it is so", **headers)
    assert talk("hi") == (1, "", f"goodspeed: {stub.url}{said}\n")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (
            event({"error": {"message": "the node\nwent", "type": "t", "param": None, "code": "verify_away"}})
            + b"data: [DONE]\n\n",
            ": the node went",
        ),
        (b"", " without a reason; see the node's log"),
        (event({**FRAME, "choices": [], "usage": USAGE}), " without a reason; see the node's log"),
    ],
)
def test_an_answer_that_breaks_off(stub: Stub, talk: Talk, rest: bytes, said: str) -> None:
    stub.body = chunk("Hel") + rest
    assert talk("hi") == (1, "Hel\n", f"goodspeed: {stub.url} ended the answer early{said}\n")
    status, out, _ = talk("hi", "--json")
    assert status == 1
    assert json.loads(out.splitlines()[-1])["error"] == f"{stub.url} ended the answer early{said}"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"data: nonsense\n\n", "text/event-stream"),
        (b'data: {"choices": 1}\n\n', "text/event-stream"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "text/event-stream"),
        (b"data: " + b"x" * (2 << 20), "text/event-stream"),
        (chunk("Hello") + LAST, "text/html"),
    ],
)
def test_what_is_no_answer(stub: Stub, talk: Talk, body: bytes, kind: str) -> None:
    stub.body, stub.headers = body, {"Content-Type": kind}
    status, out, err = talk("hi")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("goodspeed: ")
    assert stub.url in err


def test_a_model_that_is_not_served(stub: Stub, talk: Talk) -> None:
    said = f"goodspeed: {stub.url} does not serve the model 'third'; it serves first, second\n"
    assert talk("hi", "--model", "third") == (1, "", said)
    stub.models = b'{"object": "list", "data": []}'
    assert talk("hi") == (1, "", f"goodspeed: {stub.url} serves no model\n")


def test_a_node_on_this_machine_is_asked_without_a_proxy(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    for proxy in ("socks5://127.0.0.1:9", "foo://x", "http://127.0.0.1:9"):
        monkeypatch.setenv("ALL_PROXY", proxy)
        assert talk("hi")[:2] == (0, "Hello\n")
        status, out, err = talk("hi", url="http://192.0.2.1:8000")
        assert (status, out, err.count("\n")) == (1, "", 1)
    assert "192.0.2.1:8000 cannot be reached ([Errno 111] Connection refused)" in err  # the proxy


def test_no_host_can_have_that_name(talk: Talk) -> None:
    status, out, err = talk("hi", url="http://a..b")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("goodspeed: http://a..b cannot be reached (")


def test_what_is_not_utf_8_is_replaced(stub: Stub, talk: Talk) -> None:
    assert talk("hi", "--system", "caf\udce9", "--tier", "\udcff")[:2] == (0, "Hello\n")
    assert stub.asked[-1]["messages"][0]["content"] == "caf\ufffd"
    assert stub.asked[-1]["goodspeed"]["slo"] == "\ufffd"


def test_nobody_is_there(talk: Talk) -> None:
    with serving() as gone:
        pass
    status, out, err = talk("hi", url=gone.url)
    assert (status, out) == (1, "")
    assert err.startswith(f"goodspeed: {gone.url} cannot be reached (")
    assert err.count("\n") == 1


def test_the_key_is_of_a_file_or_the_environment(
    stub: Stub, talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("# mine\nfrom-a-file\n")
    talk("hi")
    monkeypatch.setenv(KEY_VARIABLE, "from-the-environment")
    talk("hi")
    talk("hi", "--api-key", str(file))
    assert stub.keys == {None, "Bearer from-the-environment", "Bearer from-a-file"}
    stub.refuse(401, "no")
    assert " answered 401: no; name a file" in talk("hi")[2]
    monkeypatch.setenv(KEY_VARIABLE, "two words here")
    assert talk("hi")[2].startswith(f"goodspeed: {KEY_VARIABLE} holds no key; ")
    assert "cannot read it" in talk("hi", "--api-key", str(tmp_path / "none"))[2]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x/?a=b", "http://u:p@x"]
)
def test_what_is_no_url(talk: Talk, url: str) -> None:
    status, _, err = talk("hi", url=url)
    assert status == 2
    assert err.startswith("goodspeed: --url ")
    assert "u:p" not in err
