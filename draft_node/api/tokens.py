"""`POST /tokenize` and `/detokenize`, in vLLM's shape: what a prompt is to the models, and back."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends

from draft_node.api.answers import Detokenized, Tokenized
from draft_node.api.body import reads
from draft_node.api.document import TAKE, takes
from draft_node.api.errors import ApiError
from draft_node.api.schemas import DetokenizeRequest, TokenizeRequest
from draft_node.api.wanted import check_model, encode_chat
from draft_node.config import DraftConfig
from draft_node.service import Service


def router(service: Service, config: DraftConfig) -> APIRouter:
    routes = APIRouter()

    @routes.post("/tokenize", responses=TAKE, openapi_extra=takes(TokenizeRequest))
    async def tokenize(body: Annotated[TokenizeRequest, Depends(reads(TokenizeRequest))]) -> Tokenized:
        """`prompt`, or `messages` by the chat template; `max_model_len` is 0 while the verify node is away."""
        check_model(body.model, config)
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "send either prompt or messages", param="prompt")
        if body.messages is not None:
            ids = await encode_chat(body.messages, service)
        else:
            ids = await service.encode(body.prompt or "")
        return Tokenized(tokens=list(ids), count=len(ids), max_model_len=service.context_len)

    @routes.post("/detokenize", responses=TAKE, openapi_extra=takes(DetokenizeRequest))
    async def detokenize(body: Annotated[DetokenizeRequest, Depends(reads(DetokenizeRequest))]) -> Detokenized:
        check_model(body.model, config)
        if body.tokens and max(body.tokens) >= service.vocab_size:
            what = f"tokens: {max(body.tokens)} is no token id; they go from 0 to {service.vocab_size - 1}"
            raise ApiError(400, what, param="tokens", code="vocabulary")
        return Detokenized(prompt=await asyncio.to_thread(service.decode, body.tokens))

    return routes
