"""Description of a gateway's endpoints in OpenAPI 3.1, with the schemas of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from murk import __version__
from murk.stream.messages.codec import REASONS, json_schema

if TYPE_CHECKING:
    from murk.stream.task.task import Task

_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def description(task: Task) -> bytes:
    """Return the description of the gateway of a task, as JSON."""
    base = f"/v1/tasks/{task.name}"
    schemas = json_schema()
    release = {"$ref": "#/components/schemas/Release"}
    chain = {
        "name": "chain",
        "in": "query",
        "description": "The device's chain.",
        "schema": {"type": "integer", "minimum": 0, "exclusiveMaximum": task.log.partitions, "default": 0},
    }
    listed = {"type": "object", "required": ["name", "hash"], "properties": {"name": {"type": "string"}, "hash": _HASH}}
    tasks = {"type": "object", "required": ["tasks"], "properties": {"tasks": {"type": "array", "items": listed}}}
    not_modified = {"description": "The copy named by If-None-Match is the newest."}
    outcome = _answer("Outcome", "outcome by release")
    return msgspec.json.encode({
        "openapi": "3.1.0",
        "info": {
            "title": "Murk gateway", "version": __version__,
            "description": "Reads a task and its newest model, and appends privatized releases to the task's log.",
        },
        "paths": {
            "/v1/tasks": {"get": {
                "operationId": "listTasks", "summary": "List the tasks.",
                "responses": {"200": _content("The tasks.", tasks)} | _errors(401, 429),
            }},
            base: {"get": {
                "operationId": "getTask", "summary": "Return the task's document, byte for byte.",
                "responses": {
                    "200": _content("The document.", {"type": "object"}) | {"headers": {
                        "ETag": _header({"type": "string"}), "Murk-Task-Hash": _header(_HASH),
                    }},
                    "304": not_modified,
                } | _errors(401, 429),
            }},
            f"{base}/model": {"get": {
                "operationId": "getModel", "summary": "Return the newest model.", "parameters": [chain],
                "responses": {
                    "200": _answer("Model", "the newest model") | {"headers": {"ETag": _header({"type": "string"})}},
                    "204": {"description": "None is published yet."},
                    "304": not_modified,
                } | _errors(401, 404, 429, 503),
            }},
            f"{base}/releases": {"post": {
                "operationId": "postReleases", "summary": "Append releases durably.",
                "requestBody": {"required": True, "content": {"application/json": {"schema": {"oneOf": [
                    release, {"type": "array", "items": release, "minItems": 1, "maxItems": 256},
                ]}}}},
                "responses": {
                    **{str(status): outcome for status in (202, 207, 400, 409, 410, 413, 422)},
                    **_errors(401, 408, 415, 429, 503),
                },
            }},
            "/healthz": {"get": {
                "operationId": "getHealth", "summary": "Return whether the log can be reached.", "security": [],
                "responses": {"200": {"description": "It can."}, "503": {"description": "It cannot."}},
            }},
            "/openapi.json": {"get": {
                "operationId": "getDescription", "summary": "Return this description.",
                "responses": {
                    "200": _content("This description.", {"type": "object"}), "304": not_modified,
                } | _errors(401, 429),
            }},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Release": schemas[task.release_kind],
                "Model": schemas["iterate"],
                "Outcome": {
                    "type": "object", "required": ["accepted", "refused"],
                    "properties": {
                        "accepted": {"type": "integer", "minimum": 0, "maximum": 256},
                        "refused": {"type": "array", "items": {
                            "type": "object", "required": ["index", "reason"],
                            "properties": {
                                "index": {"type": "integer", "minimum": 0}, "reason": {"enum": list(REASONS)},
                            },
                        }},
                        "error": {"type": "string"},
                    },
                },
                "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
            },
        },
        # With a token or without, as the operator chose.
        "security": [{}, {"token": []}],
    })  # fmt: skip


def _answer(schema: str, words: str) -> dict[str, Any]:
    return _content(f"The {words}.", {"$ref": f"#/components/schemas/{schema}"})


def _content(words: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _header(schema: dict[str, Any]) -> dict[str, Any]:
    return {"schema": schema}


def _errors(*statuses: int) -> dict[str, Any]:
    return {str(status): _answer("Error", "reason of the refusal") for status in statuses}
