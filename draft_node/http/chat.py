"""`POST /v1/chat/completions`: a conversation, and the assistant's next turn."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.http.answering import answer, now
from draft_node.http.body import LargeWork, ignored_of, reads
from draft_node.http.choices import Choice
from draft_node.http.document import WORK, takes
from draft_node.http.logprobs import for_chat
from draft_node.http.requests import ChatRequest
from draft_node.http.streams import unless_gone
from draft_node.http.tools import has_switch, made
from draft_node.http.wanted import Wish, of_chat
from draft_node.service.answer import Piece
from draft_node.service.request import Ended
from draft_node.service.service import Service
from draft_node.service.tokens import Token
from goodspeed.serving.web import user_of
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


class Shape:
    """A chunk has a `delta` where a whole answer has a `message`; the first one of a choice says who speaks."""

    def __init__(self, model: str, wish: Wish, *, logprobs: bool) -> None:
        self._id = f"chatcmpl-{secrets.token_hex(16)}"
        self._created = now()
        self._model = model
        self._wish = wish
        self._num_calls = [0] * len(wish.texts)
        self._tools = wish.speech.formats.tools if wish.speech is not None else None
        self._logprobs = logprobs

    def frame(self, choices: Sequence[Choice], usage: Usage) -> ChatCompletion:
        """A whole answer, but for its choices."""
        answer = ChatCompletion(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._model,
            choices=[],
            usage=usage,
        )
        if self._wish.returns_token_ids:
            answer.prompt_token_ids = list(self._wish.texts[0].prompt)
        return answer

    def _message(self, choice: Choice) -> AssistantMessage:
        """Says nothing of thinking and calls where there are none."""
        message = AssistantMessage(
            role="assistant", content=choice.text or (None if choice.calls else ""), refusal=None
        )
        if choice.thinking:
            message.reasoning_content = message.reasoning = choice.thinking
        if choice.calls:
            message.tool_calls = [made(call, self._tools) for call in choice.calls]
        return message

    def beginnings(self) -> Iterable[ChatChunk]:
        begun = [self._chunk(i, Delta(role="assistant", content="")) for i in range(len(self._wish.texts))]
        if self._wish.returns_token_ids:
            begun[0].prompt_token_ids = list(self._wish.texts[0].prompt)
        return begun

    def piece(self, index: int, piece: Piece) -> ChatChunk | None:
        """None where there is nothing to tell."""
        tells_tokens = self._logprobs or self._wish.returns_token_ids
        if piece.call is not None:
            delta = Delta(
                tool_calls=[MadeCallDelta(index=self._num_calls[index], **dict(made(piece.call, self._tools)))]
            )
            self._num_calls[index] += 1
        elif piece.thinking:
            delta = Delta(reasoning_content=piece.thinking, reasoning=piece.thinking)
        elif piece.text or (tells_tokens and piece.tokens):
            delta = Delta(content=piece.text)
        else:
            return None
        chunk = self._chunk(index, delta, logprobs=self._of(piece.tokens))
        if self._wish.returns_token_ids:
            chunk.choices[0].token_ids = [token.id for token in piece.tokens]
        return chunk

    def ending(self, index: int, ended: Ended) -> ChatChunk:
        return self._chunk(index, Delta(), reason=_reason(ended.reason, self._num_calls[index]))

    def last(self) -> ChatChunk:
        return self._of_choices([])

    def told(self, index: int, choice: Choice) -> ChatChoice:
        if choice.ended is None:
            raise RuntimeError("a choice is told whole before its text has ended")
        told = ChatChoice(
            index=index,
            message=self._message(choice),
            logprobs=self._of(choice.tokens),
            finish_reason=_reason(choice.ended.reason, len(choice.calls)),
        )
        if self._wish.returns_token_ids:
            told.token_ids = [token.id for token in choice.tokens]
        return told

    def _of(self, tokens: Sequence[Token]) -> ChatLogprobs | None:
        return for_chat(tokens) if self._logprobs else None

    def _chunk(
        self, index: int, delta: Delta, logprobs: ChatLogprobs | None = None, reason: ChatFinishReason | None = None
    ) -> ChatChunk:
        return self._of_choices([ChatChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=reason)])

    def _of_choices(self, choices: list[ChatChunkChoice]) -> ChatChunk:
        return ChatChunk(
            id=self._id, object="chat.completion.chunk", created=self._created, model=self._model, choices=choices
        )


def _reason(reason: FinishReason, num_calls: int) -> ChatFinishReason:
    """Returns why an answer ended: a text that is cut is cut, calls or not."""
    return "tool_calls" if num_calls and reason == "stop" else reason


def router(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/chat/completions", response_model=ChatCompletion, responses=WORK, openapi_extra=takes(ChatRequest)
    )
    async def chat(
        request: Request, body: Annotated[ChatRequest, Depends(reads(ChatRequest, work.bodies))]
    ) -> Response:
        wanted = of_chat(body, service, config, user_of(request.scope), request.headers)
        wish = await unless_gone(request.receive, wanted)
        if body.enable_thinking is not None and not has_switch(service.chats, tools=bool(body.tools)):
            ignored_of(request.scope).add("enable_thinking")
        shape = Shape(config.served_model_name, wish, logprobs=bool(body.logprobs))
        return await answer(request, body, wish, shape, service, config, work.answers)

    return routes
