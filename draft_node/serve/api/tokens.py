"""`POST /tokenize` and `/detokenize`, in vLLM's shape: what a prompt is to the models, and back."""

import json
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from draft_node.config import DraftConfig
from draft_node.serve.api.document import TAKE, takes
from draft_node.serve.api.large import LargeWork
from draft_node.serve.api.request.body import reads
from draft_node.serve.api.request.errors import ApiError
from draft_node.serve.api.request.prompts import encode_chat, encode_prompt
from draft_node.serve.api.request.schemas import DetokenizeRequest, TokenizeRequest
from draft_node.serve.api.request.tools import talk_of
from draft_node.serve.api.request.wanted import check_model
from draft_node.serve.api.response.responses import Detokenized, Tokenized, json_with
from draft_node.serve.api.response.texts import unless_gone
from draft_node.serve.service import Service
from goodspeed.node.web import user_of

SLICE = 1 << 14
"""Token ids that are written at once."""


def router(service: Service, config: DraftConfig, work: LargeWork) -> APIRouter:
    routes = APIRouter()

    @routes.post("/tokenize", response_model=Tokenized, responses=TAKE, openapi_extra=takes(TokenizeRequest))
    async def tokenize(
        request: Request, body: Annotated[TokenizeRequest, Depends(reads(TokenizeRequest, work.bodies))]
    ) -> Response:
        """`prompt`, or `messages` by the chat template; `max_model_len` is 0 while the verify node is away."""
        check_model(body.model, config)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "send either prompt or messages", param="prompt")
        user = user_of(request.scope)
        if body.messages is not None:
            talk = talk_of(service.chats, tools=body.tools, settings=body.chat_template_kwargs)
            encoding = encode_chat(body.messages, service, user, talk.inputs)
        elif body.tools or body.chat_template_kwargs:
            name = "tools" if body.tools else "chat_template_kwargs"
            raise ApiError(400, f"{name} is for messages; send messages, or leave it out", param=name)
        else:
            encoding = encode_prompt(body.prompt or "", service, user)
        ids = await unless_gone(request.receive, encoding)
        content = await work.answers.run(user, len(ids), lambda: _tokenized(ids, service.context_len))
        return Response(content, media_type="application/json")

    @routes.post("/detokenize", responses=TAKE, openapi_extra=takes(DetokenizeRequest))
    async def detokenize(
        request: Request, body: Annotated[DetokenizeRequest, Depends(reads(DetokenizeRequest, work.bodies))]
    ) -> Detokenized:
        check_model(body.model, config)
        if body.tokens and max(body.tokens) >= service.vocab_size:
            what = f"tokens: {max(body.tokens)} is no token id; they go from 0 to {service.vocab_size - 1}"
            raise ApiError(400, what, param="tokens", code="vocabulary")
        decoding = service.decode(body.tokens, user_of(request.scope))
        return Detokenized(prompt=await unless_gone(request.receive, decoding))

    return routes


def _tokenized(ids: Sequence[int], max_model_len: int) -> str:
    """The answer, made in slices: between them others have the interpreter."""
    slices = (ids[start : start + SLICE] for start in range(0, len(ids), SLICE))
    tokens = ",".join(json.dumps(each, separators=(",", ":"))[1:-1] for each in slices)
    return json_with(
        Tokenized(tokens=[], count=len(ids), max_model_len=max_model_len, token_strs=None), "tokens", tokens
    )
