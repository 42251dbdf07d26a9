"""Types of fields that requests are checked by: strict, with errors that say what was given."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

UNKNOWN, EMPTY, ROLE, PART, SERVICE_TIER = "unknown_parameter", "null", "role", "part", "service_tier"
PREDICTION, OF_ROLE, UNSERVED = "prediction", "of_role", "unserved"
"""Errors of our own, by name."""

IGNORED = frozenset(
    {
        *("cache_control", "cache_prompt", "id_slot", "keep_alive", "ttl"),  # what to keep in memory, and where
        *("chat_id", "request_id", "session_id", "litellm_metadata"),  # names for others' logs
        *("provider", "safety_settings"),  # whom a router is to ask, and what a hosted model is to refuse
    }
)
"""Members that real clients send for other servers, anywhere in a body. They ask for no other answer of this one: each
is ignored, and the answer's header says so."""


def _only(value: bool) -> AfterValidator:
    """Refuses every other value; `Literal[value]` would take 0 and 1 as well."""

    def check(given: bool) -> bool:
        if given is not value:
            raise ValueError(f"must be {str(value).lower()}, or left out")
        return given

    return AfterValidator(check)


class _NotNull:
    """Marks a required field: null gets an error of its own instead of the type's."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, core_schema.nullable_schema(handler(source)))

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema["schema"]["schema"])

    @staticmethod
    def _check(given: object) -> object:
        if given is None:
            raise PydanticCustomError(EMPTY, "null")
        return given


NOT_NULL = _NotNull()


def one_of(kind: str, *known: str) -> tuple[AfterValidator, WithJsonSchema]:
    """Refuses names that are not known; the error of `Literal` would not tell what was given instead."""

    def check(given: str) -> str:
        if given not in known:
            raise PydanticCustomError(kind, "unknown", {"given": ascii(given[:40])})
        return given

    return AfterValidator(check), WithJsonSchema({"type": "string", "enum": list(known)})


def _hint(given: str, info: ValidationInfo) -> str:
    if given != "medium":
        ignore("verbosity", info)
    return given


Verbosity: TypeAlias = Annotated[Literal["low", "medium", "high"], AfterValidator(_hint)] | None
"""How much the model is to say: none is told. Other than "medium", which changes nothing, is ignored."""

Yes: TypeAlias = Annotated[bool, _only(True), WithJsonSchema({"type": "boolean", "const": True})] | None
No: TypeAlias = Annotated[bool, _only(False), WithJsonSchema({"type": "boolean", "const": False})] | None
NoList: TypeAlias = Annotated[list[Any], Field(max_length=0)] | None
Mark: TypeAlias = Annotated[str, Field(max_length=512)] | None
TokenId: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 31)]
TokenIds: TypeAlias = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]


class Strict(BaseModel):
    """No conversions, no unknown fields, no NaN."""

    # Not extra="forbid", which makes an error of every unknown field: a body can have very many.
    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra={"additionalProperties": False},
    )

    @model_validator(mode="after")
    def _knows_all(self, info: ValidationInfo) -> Self:
        for name in self.model_extra or ():
            if name not in IGNORED:
                raise PydanticCustomError(UNKNOWN, "not known here", {"name": name})
            ignore(name, info)
        return self


def ignore(name: str, info: ValidationInfo) -> None:
    """Notes that a member is ignored: in the set that is the context of reading a body, where there is one."""
    if info.context is not None:
        info.context.add(name)
