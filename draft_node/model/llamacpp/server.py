"""A client of llama.cpp's server: asks for completions of token ids, and checks all that it answers.

The server is another program, perhaps on another machine. Sizes, ids and probabilities are bounded before they are
used, and an answer that takes too long, however slowly it comes, or cannot be read is an error. Called on the model
thread.
"""

import socket
import time
from collections import deque
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from draft_node.model import circuit_breaker
from goodspeed.engine.tokenizing.text import encode_part, num_shared
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, MalformedMessage, TransportError
from goodspeed.untrusted import sanitize
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT

KEY_VARIABLE = "LLAMA_API_KEY"
"""Environment variable with the server's API key; llama.cpp's own programs read it, too."""

MAX_ANSWER_BYTES = 1 << 20
"""Longest answer; one with MAX_DRAFT tokens and 32 others beside each has less than 200 kB."""

IDLE_S = 1.0
"""Idle time after which a connection is replaced before its next use: the server may be closing it."""

START_TIMEOUT_S = 30.0
"""Longest wait for an answer before the node serves."""

PROBE = (
    "A probe: 1 2 3, 40+2=42; def f(x): return [x, 'y'] # \n\n\tWhere's the fox's den? \"Überall\", sagte sie. "
    'SELECT * FROM t WHERE a >= 10; {"key": null} <b>déjà vu</b> 漢字 かな Привет мир 🙂\r\n  end.'
)
"""Text that two tokenizers rarely encode alike unless they are the same."""

Probability = Annotated[float, Meta(le=1e-3)]  # its logarithm, rounded
Token = Annotated[int, Meta(ge=0, lt=1 << 31)]
T = TypeVar("T")


class Choice(Struct):
    """A token with its log-probability before sampling."""

    id: Token
    logprob: Probability


class Place(Struct):
    """A place of a completion: the token that the server wrote there, and the likeliest ones, sorted.

    The server tells none after which the text ends within a character, nor those that it had drafted itself.
    """

    id: Token
    top_logprobs: Annotated[list[Choice], Meta(max_length=1024)]


class _Completion(Struct):
    tokens: Annotated[list[Token], Meta(max_length=2 * MAX_DRAFT)] = []
    completion_probabilities: Annotated[list[Place], Meta(max_length=2 * MAX_DRAFT)] = []

    def __post_init__(self) -> None:
        """Gives each token a place; without likeliest ones where it has no entry of probabilities.

        Entries are in the order of the tokens, and each belongs to the first token that it can be of.
        """
        entries = deque(self.completion_probabilities)
        self.completion_probabilities = [
            entries.popleft() if entries and entries[0].id == token else Place(token, []) for token in self.tokens
        ]
        if entries:
            raise ValueError("probabilities of tokens that are not among the answer's")


class _Slot(Struct):
    n_ctx: Annotated[int, Meta(gt=0)]


class _Props(Struct):
    total_slots: Annotated[int, Meta(ge=1, le=256)]
    default_generation_settings: _Slot


class _Meta(Struct):
    n_vocab: Annotated[int, Meta(ge=1)]


class _Model(Struct):
    meta: _Meta


class _Models(Struct):
    data: Annotated[list[_Model], Meta(min_length=1)]


class _Tokens(Struct):
    tokens: Annotated[list[Token], Meta(max_length=4 * len(PROBE))]


class Ask(NamedTuple):
    """A completion that is wanted."""

    slot: int  # the server's, which keeps the keys and values of its latest text
    prompt: tuple[int, ...]
    num_tokens: int  # 0 only computes keys and values
    num_top: int  # likeliest tokens to tell at each place
    is_new: bool = False  # what the slot has is another text's, and is not used
    is_forced: bool = False  # the server writes a token of whole characters, so that it tells the likeliest ones


class _Socket(socket.socket):
    """A socket with one deadline for all that is received: no header, however slowly it comes, has time of its own."""

    until = 0.0

    def recv_into(self, *arguments: Any) -> int:
        if (left := self.until - time.monotonic()) <= 0:
            raise TimeoutError("its answer takes too long")
        self.settimeout(left)
        return super().recv_into(*arguments)


class _Connection(HTTPConnection):
    """A connection that sends a request and receives all of its answer by one deadline."""

    sock: _Socket | None
    used_at = 0.0

    def ask(self, path: str, body: object, headers: dict[str, str], until: float) -> None:
        left = max(1e-3, until - time.monotonic())
        if self.sock is None:
            opened = socket.create_connection((self.host, self.port), left)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = _Socket(fileno=opened.detach())
        self.sock.settimeout(left)
        self.sock.until = until
        encoded = None if body is None else msgspec.json.encode(body)
        self.request("GET" if body is None else "POST", path, encoded, headers)

    def answer(self) -> tuple[int, bytes]:
        """Returns status and body, of which more than MAX_ANSWER_BYTES is not read."""
        response = self.getresponse()
        found = response.read(MAX_ANSWER_BYTES + 1)
        self.used_at = time.monotonic()
        return response.status, found


class Server:
    """A server with one connection per slot, so that all slots compute at the same time."""

    def __init__(self, name: str, host: str, port: int, key: str | None = None) -> None:
        """name: of the server in error messages. key: its API key."""
        self.name = name
        self.num_slots = 0
        self.context_len = 0  # of one slot
        self.whole = 0  # a token after which a text ends with a whole character
        self._address = host, port
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._connections: dict[int, _Connection] = {}  # by slot
        self._completions = msgspec.json.Decoder(_Completion)

    def check(self, vocabulary: Vocabulary) -> int:
        """Reads the server's limits; returns the bound of the common ids. CheckpointError if its tokens differ."""
        props = self._fetch("/props", _Props)
        self.num_slots = props.total_slots
        self.context_len = min(props.default_generation_settings.n_ctx, MAX_CONTEXT)
        num_rows = self._fetch("/v1/models", _Models).data[0].meta.n_vocab
        what = f"--model {self.name} has another tokenizer than --tokenizer {vocabulary.name}"
        instead = "give a GGUF file of the target's family, and the target's tokenizer"
        num_known = num_shared(vocabulary.tokenizer, num_rows)
        if num_known is None:
            raise CheckpointError(f"{what}: {num_rows} tokens, not {vocabulary.num_tokens}; {instead}")
        body = {"content": PROBE, "add_special": False, "parse_special": False}
        tokens = encode_part(vocabulary.tokenizer, PROBE)
        if self._fetch("/tokenize", _Tokens, body).tokens != tokens:
            raise CheckpointError(f"{what}: a test text has other token ids; {instead}")
        self.whole = tokens[0]
        return num_known

    def complete(self, asks: Sequence[Ask]) -> list[list[Place] | None]:
        """Returns the places of each completion, and None where the server refuses a request.

        TransportError or MalformedMessage for a server that is away, too slow, or wrong.
        """
        until = time.monotonic() + circuit_breaker.DRAFTING_TIMEOUT_S
        try:
            for ask in asks:
                self._send(ask, until)
            return [self._receive(ask.slot) for ask in asks]
        except (OSError, HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error
        except BaseException:
            self.close()  # answers to come would be taken for those of later requests
            raise

    # -- HTTP ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _send(self, ask: Ask, until: float) -> None:
        connection = self._connections.setdefault(ask.slot, _Connection(*self._address))
        if time.monotonic() - connection.used_at > IDLE_S:
            connection.close()  # asking opens it anew
        body = {
            "prompt": ask.prompt,
            "id_slot": ask.slot,
            "cache_prompt": not ask.is_new,
            "n_predict": ask.num_tokens,
            "n_probs": ask.num_top if ask.num_tokens else 0,
            "samplers": ["top_k"],
            "top_k": 1,
            "return_tokens": True,
            "response_fields": ["tokens", "completion_probabilities"],
        }
        if ask.is_forced:
            body["logit_bias"] = [[self.whole, 1e9]]  # probabilities are those before it
        connection.ask("/completion", body, self._headers, until)

    def _receive(self, slot: int) -> list[Place] | None:
        status, body = self._connections[slot].answer()
        if status == 400:  # such as a text that is too long for the server
            return None
        return self._parsed(status, body, self._completions).completion_probabilities

    def _fetch(self, path: str, kind: type[T], body: object = None) -> T:
        """Asks for one thing on a connection of its own."""
        connection = _Connection(*self._address)
        try:
            connection.ask(path, body, self._headers, time.monotonic() + START_TIMEOUT_S)
            return self._parsed(*connection.answer(), msgspec.json.Decoder(kind))
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> TransportError:
        why = sanitize(str(error)) or type(error).__name__
        what = f"llama.cpp's server at {self.name} does not answer ({why})"
        return TransportError(f"{what}; start it, or look at its log")

    def _parsed(self, status: int, body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
        if status == 401:
            raise TransportError(f"{self.name} wants its API key; set {KEY_VARIABLE} to it")
        if status != 200:
            why = sanitize(body[:200].decode(errors="replace"))
            raise TransportError(f"{self.name} answers with status {status}: {why}")
        if len(body) > MAX_ANSWER_BYTES:
            raise MalformedMessage(f"{self.name} answers with more than {MAX_ANSWER_BYTES} bytes")
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = sanitize(str(error))
            raise MalformedMessage(f"{self.name} does not answer as llama.cpp's server does: {why}") from None
