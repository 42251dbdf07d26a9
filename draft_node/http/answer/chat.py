"""Texts become chat completions, whole or in chunks."""

from collections.abc import Iterable, Sequence
from typing import Any

from draft_node.http.answer.choices import Choice, Json, made
from draft_node.http.answer.chunks import Chunked
from draft_node.http.answer.logprobs import for_chat
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import ChatRequest
from draft_node.parsing.formats import Call, Content, ParsedPart, Thinking
from draft_node.service.output_processor import Ended, Piece
from draft_node.service.token_text import Token
from goodspeed.wire.fields import FinishReason


class ChatShape(Chunked):
    """Chat completions; whole answers have a `message`, chunks a `delta`. A choice's first chunk has the role."""

    kind, kind_of_chunks = "chat.completion", "chat.completion.chunk"

    def __init__(self, body: ChatRequest, batch: Batch, model: str) -> None:
        super().__init__(body, batch, model, "chatcmpl")
        self._num_calls = [0] * len(batch.texts)
        self._logprobs = bool(body.logprobs)

    def _of_all(self) -> Json:
        return self.prompt_ids(0) | super()._of_all()

    def told(self, index: int, choice: Choice, ended: Ended) -> Json:
        parts = choice.parts
        num_calls = sum(isinstance(part, Call) for part in parts)
        return {
            "index": index,
            "message": self._message(parts),
            "logprobs": self._of(choice.tokens),
            "finish_reason": _reason(ended.reason, num_calls),
            **self.ids_of(choice.tokens),
        }

    def _message(self, parts: Sequence[ParsedPart]) -> Json:
        """Builds the message; omits reasoning and calls if there are none. Reasoning has the two names in use."""
        text = "".join(part.text for part in parts if isinstance(part, Content))
        thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
        calls = [made(part, self.batch.parser.formats.tools) for part in parts if isinstance(part, Call)]
        return {
            "role": "assistant",
            "content": text or (None if calls else ""),
            "refusal": None,
            **({"reasoning_content": thinking, "reasoning": thinking} if thinking else {}),
            **({"tool_calls": calls} if calls else {}),
        }

    def beginnings(self) -> Iterable[Json]:
        begun = [self._chunk(i, {"role": "assistant", "content": ""}) for i in range(len(self.batch.texts))]
        begun[0] |= self.prompt_ids(0)
        return begun

    def piece(self, index: int, piece: Piece) -> Json | None:
        match piece.parts:
            case (Call() as call,):
                shown = made(call, self.batch.parser.formats.tools)
                delta: Json = {"tool_calls": [{"index": self._num_calls[index], **shown}]}
                self._num_calls[index] += 1
            case (Thinking(text),):
                delta = {"reasoning_content": text, "reasoning": text}
            case (Content(text),):
                delta = {"content": text}
            case _ if piece.tokens and (self._logprobs or self.batch.returns_token_ids):
                delta = {"content": ""}
            case _:
                return None
        return self._chunk(index, delta, self._of(piece.tokens), **self.ids_of(piece.tokens))

    def ending(self, index: int, ended: Ended) -> Json:
        return self._chunk(index, {}, finish_reason=_reason(ended.reason, self._num_calls[index]))

    def _of(self, tokens: Sequence[Token]) -> Json | None:
        return for_chat(tokens) if self._logprobs else None

    def _chunk(self, index: int, delta: Json, logprobs: Json | None = None, **others: Any) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, **others}
        return self.chunk(choice)


def _reason(reason: FinishReason, num_calls: int) -> str:
    """Returns the finish reason: a truncated text has "length", with or without calls."""
    return "tool_calls" if num_calls and reason == "stop" else reason
