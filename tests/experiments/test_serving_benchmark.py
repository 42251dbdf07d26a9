"""The benchmark of serving: what its load generator takes for a complete answer, and what it makes of the times."""

import asyncio
import itertools
import json
import socket
import time

import pytest

from experiments.benchmarks import serving
from experiments.benchmarks.nodes import http_load
from experiments.benchmarks.nodes.http_load import Address, BadAnswer, Sent, poisson, send_all
from experiments.benchmarks.serving import Text

HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(text="", reason=None, num_tokens=None):
    usage = None if num_tokens is None else {"completion_tokens": num_tokens}
    choices = [] if num_tokens is not None else [{"text": text, "finish_reason": reason}]
    return b"data: " + json.dumps({"choices": choices, "usage": usage}).encode() + b"\n\n"


WAITING = b": waiting\n\n"
WHOLE = (event("à "), event("b c"), event("", "length"), event(num_tokens=3), DONE)


def arrived(data, times=(1.0,)):
    """The data in as many parts as there are times, of equal length."""
    size = -(-len(data) // len(times))
    return [(at, data[size * i : size * (i + 1)]) for i, at in enumerate(times)]


def test_a_complete_answer_is_read_with_its_times():
    answer = Sent(10.0, [(11.0 + i, part) for i, part in enumerate((HEAD, *WHOLE))]).answer(3)
    assert answer.text == "à b c"
    assert answer.pieces_s == (2.0, 3.0)
    assert answer.per_token_s == 0.5  # a second from the first piece to the last, for the two other tokens


def test_what_a_node_sends_while_nothing_comes_is_no_part_of_the_answer():
    parts = (HEAD, WAITING, WAITING, WHOLE[0], WAITING, *WHOLE[1:])
    answer = Sent(10.0, [(11.0 + i, part) for i, part in enumerate(parts)]).answer(3)
    assert answer.text == "à b c"
    assert answer.pieces_s == (4.0, 6.0)


@pytest.mark.parametrize("num_parts", [1, 2, 7, 50])
def test_it_does_not_matter_where_the_answer_is_cut_on_its_way(num_parts):
    whole = Sent(0.0, arrived(HEAD + b"".join(WHOLE), [float(i) for i in range(num_parts)]))
    assert whole.answer(3).text == "à b c"


ERROR = b'data: {"error": {"message": "no more"}}\n\n'


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HEAD + b"".join(WHOLE[:-1]), "it ended with"),
        (HEAD + WHOLE[0] + WHOLE[3] + DONE, "finish reason None"),
        (HEAD + b"".join(WHOLE[:3]) + DONE, "usage None"),
        (HEAD + b"".join(WHOLE[:3]) + event(num_tokens=2) + DONE, "3 tokens wanted"),
        (HEAD + b"".join(WHOLE[2:]), "no text came"),
        (HEAD + WHOLE[0] + ERROR + DONE, "the stream broke: no more"),
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\nbusy", "429 Too Many Requests"),
        (b"", "answered with ''"),
    ],
)
def test_what_is_not_complete_is_lost_and_says_why(data, why):
    with pytest.raises(BadAnswer, match=why):
        Sent(0.0, arrived(data)).answer(3)


def test_requests_are_sent_when_they_are_due_and_answers_kept():
    async def run():
        asked = []

        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            asked.append((time.perf_counter(), json.loads(await reader.readexactly(length))))
            if asked[-1][1]["prompt"] != "cut off":
                writer.write(HEAD + b"".join(WHOLE))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            texts = [Text(prompt, 3, 1.0, i, False) for i, prompt in enumerate(("a", "cut off", "b"))]
            began = time.perf_counter()
            sent = await send_all([Address(host, port)], [text.body() for text in texts], [0.0, 0.0, 0.05])
        return began, asked, sent, texts

    began, asked, sent, texts = asyncio.run(run())
    last = max(asked, key=lambda one: one[0])
    assert last[1]["prompt"] == "b"
    assert last[0] >= began + 0.05
    assert last[1]["goodspeed"] == {"speculate": False}
    assert last[1]["ignore_eos"] is True
    assert last[1]["stream"] is True
    answers = serving.read(sent, texts)
    assert [answer.text for answer in answers] == ["à b c", "à b c"]
    assert all(answer.pieces_s[0] > 0 for answer in answers)


def test_nobody_there_is_a_lost_request(monkeypatch):
    monkeypatch.setattr(http_load, "ANSWER_TIMEOUT_S", 0.05)

    with socket.socket() as listener:  # nobody takes what comes
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = Address(*listener.getsockname())
        [silent] = asyncio.run(send_all([address], [{}]))
    [absent] = asyncio.run(send_all([address], [{}]))
    assert silent.failure.startswith("TimeoutError")
    assert absent.failure.startswith("ConnectionRefusedError")


def test_arrivals_are_random_at_the_rate_that_is_asked_for_and_repeat_with_their_seed():
    due = poisson(5.0, 400.0, 1)
    assert due == poisson(5.0, 400.0, 1) != poisson(5.0, 400.0, 2)
    assert 1850 < len(due) < 2150
    gaps = [late - early for early, late in itertools.pairwise([0.0, *due])]
    assert abs(sum(gap > 0.2 for gap in gaps) / len(gaps) - 0.368) < 0.04  # exponential: e^-1 are above their mean
    assert len(poisson(0.001, 1.0, 1)) == 1


def test_the_sums_are_right():
    assert serving.quantiles([1.0, 2.0, 3.0]) == {"median": 2.0, "p95": pytest.approx(2.9), "p99": pytest.approx(2.98)}
    texts = serving.texts(8, 10, speculate=True)
    assert len({text.prompt for text in texts}) == 8
