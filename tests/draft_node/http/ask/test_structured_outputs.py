"""`response_format` and `structured_outputs`: what they become, what is refused and why, and that all else waits."""

import json

import pytest

from goodspeed.wire.generation import Constraint
from tests.draft_node.http.fake import refused

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
UNNAMED = {"type": "json_schema", "json_schema": {"schema": {}}}
BY_SCHEMA = Constraint("json_schema", json.dumps(SCHEMA))


def named(**form):
    return {"type": "json_schema", "json_schema": {"name": "x", **form}}


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, Constraint("json_object")),
        (named(schema=SCHEMA), BY_SCHEMA),
        (named(schema=SCHEMA, strict=True, description="d"), BY_SCHEMA),
        (named(), Constraint("json_object")),
        ({"type": "json_object", "schema": SCHEMA}, BY_SCHEMA),
    ],
)
def test_response_format(api, form, constraint):
    assert api.chat(response_format=form).status_code == 200
    assert api.service.generations[-1].constraint == constraint


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        ({"json": SCHEMA}, BY_SCHEMA),
        ({"json": json.dumps(SCHEMA)}, BY_SCHEMA),
        ({"regex": "[ab]+"}, Constraint("regex", "[ab]+")),
        ({"choice": ["yes", "no"]}, Constraint("choice", '["yes", "no"]')),
        ({"grammar": 'start: "a"'}, Constraint("grammar", 'start: "a"')),
        ({"json_object": True}, Constraint("json_object")),
        ({"json_object": True, "regex": None}, Constraint("json_object")),
    ],
)
def test_structured_outputs(api, form, constraint):
    for ask in (api.complete, api.chat):
        assert ask(structured_outputs=form).status_code == 200
        assert api.service.generations[-1].constraint == constraint


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "param", "why"),
    [
        ({"response_format": {"type": "xml"}}, "response_format", "json_object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be given"),
        ({"response_format": named() | {"type": "json_object"}}, "response_format.json_schema", "not a supported"),
        (
            {"response_format": UNNAMED},
            "response_format.json_schema.name",
            "must be given",
        ),
        ({"response_format": {"type": "text", "more": 1}}, "response_format.more", "not a supported parameter"),
        ({"response_format": named(schema={"not": {}})}, "response_format.json_schema.schema", '"not"'),
        ({"response_format": named(schemas=SCHEMA)}, "response_format.json_schema.schemas", "did you mean schema?"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "must be true"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar", "unknown name"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "cannot be read as JSON"),
        ({"structured_outputs": {"json": {"enum": ["v" * 70_000]}}}, "structured_outputs.json", "are the most"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "must not be empty"),
        ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, "ignore_eos", "ends where its form ends"),
        ({"structured_outputs": {"backend": "x", "regex": "a"}}, "structured_outputs.backend", "not a supported"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema", "not a supported"),
        ({"guided_choice": ["a"]}, "guided_choice", "send structured_outputs"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend", "leave it out"),
    ],
)
def test_what_is_wrong_is_400_and_says_so(api, form, param, why):
    refused(api.complete(**form) if "structured_outputs" in form else api.chat(**form), param, why)


def test_two_forms_are_one_too_many(api):
    both = {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}
    refused(api.chat(**both), "structured_outputs")
    assert api.service.generations == []
    assert api.service.num_encoded == 0  # before any other work
