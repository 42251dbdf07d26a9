"""`POST /v1/chat/completions`: generates the assistant's next turn of a conversation."""

from collections.abc import Iterable, Sequence
from typing import Any

from draft_node.http.answer.choices import Choice, made
from draft_node.http.answer.chunks import Chunked
from draft_node.http.answer.logprobs import for_chat
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import ChatRequest
from draft_node.parsing.formats import Call, Content, Part, Thinking
from draft_node.service.answer import Ended, Piece
from draft_node.service.tokens import Token
from goodspeed.serving.web.bodies import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatFinishReason,
    ChatLogprobs,
    Delta,
    FinishReason,
    MadeCallDelta,
    Usage,
)


class ChatShape(Chunked):
    """Chat completions; whole answers have a `message`, chunks a `delta`. A choice's first chunk has the role."""

    def __init__(self, body: ChatRequest, batch: Batch, model: str) -> None:
        super().__init__(body, batch, model, "chatcmpl")
        self._num_calls = [0] * len(batch.texts)
        self._logprobs = bool(body.logprobs)

    def frame(self, usage: Usage) -> ChatCompletion:
        answer = ChatCompletion(**self.head, object="chat.completion", choices=[], usage=usage)
        self.show_prompt(answer, 0)
        return answer

    def told(self, index: int, choice: Choice) -> ChatChoice:
        if choice.ended is None:
            raise RuntimeError("a choice is told whole before its text has ended")
        return ChatChoice(
            index=index,
            message=self._message(choice.parts),
            logprobs=self._of(choice.tokens),
            finish_reason=_reason(choice.ended.reason, sum(isinstance(part, Call) for part in choice.parts)),
            **self.ids_of(choice.tokens),
        )

    def _message(self, parts: Sequence[Part]) -> AssistantMessage:
        """Builds the message; omits reasoning and calls if there are none."""
        text = "".join(part.text for part in parts if isinstance(part, Content))
        thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
        calls = [made(part, self.batch.parser.formats.tools) for part in parts if isinstance(part, Call)]
        message = AssistantMessage(role="assistant", content=text or (None if calls else ""), refusal=None)
        if thinking:
            message.reasoning_content = message.reasoning = thinking
        if calls:
            message.tool_calls = calls
        return message

    def beginnings(self) -> Iterable[ChatChunk]:
        begun = [self._chunk(i, Delta(role="assistant", content="")) for i in range(len(self.batch.texts))]
        self.show_prompt(begun[0], 0)
        return begun

    def piece(self, index: int, piece: Piece) -> ChatChunk | None:
        match piece.parts:
            case (Call() as call,):
                shown = made(call, self.batch.parser.formats.tools)
                delta = Delta(tool_calls=[MadeCallDelta(index=self._num_calls[index], **dict(shown))])
                self._num_calls[index] += 1
            case (Thinking(text),):
                delta = Delta(reasoning_content=text, reasoning=text)
            case (Content(text),):
                delta = Delta(content=text)
            case _ if piece.tokens and (self._logprobs or self.batch.returns_token_ids):
                delta = Delta(content="")
            case _:
                return None
        return self._chunk(index, delta, self._of(piece.tokens), **self.ids_of(piece.tokens))

    def ending(self, index: int, ended: Ended) -> ChatChunk:
        return self._chunk(index, Delta(), reason=_reason(ended.reason, self._num_calls[index]))

    def without_choices(self) -> ChatChunk:
        return ChatChunk(**self.head, object="chat.completion.chunk", choices=[])

    def _of(self, tokens: Sequence[Token]) -> ChatLogprobs | None:
        return for_chat(tokens) if self._logprobs else None

    def _chunk(
        self,
        index: int,
        delta: Delta,
        logprobs: ChatLogprobs | None = None,
        reason: ChatFinishReason | None = None,
        **ids: Any,
    ) -> ChatChunk:
        choice = ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=reason, **ids)
        return ChatChunk(**self.head, object="chat.completion.chunk", choices=[choice])


def _reason(reason: FinishReason, num_calls: int) -> ChatFinishReason:
    """Returns the finish reason: a truncated text has "length", with or without calls."""
    return "tool_calls" if num_calls and reason == "stop" else reason
