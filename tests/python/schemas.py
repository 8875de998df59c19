"""Holds what commands print as JSON against docs/json-schema.json."""

from __future__ import annotations

import json
from typing import Any

from processes import ROOT

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "json-schema.json").read_text(encoding="utf-8"))
_TYPES: dict[str, Any] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "string": str,
    "array": list,
    "object": dict,
    "null": type(None),
}


def expect_document(command: str, document: Any) -> None:
    """AssertionError names each place of `document` that is not as the schema of the command says."""
    wrong = _wrong(document, SCHEMA["properties"][command], command)
    assert not wrong, "\n".join(wrong)


def _wrong(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = [_wrong(value, each, where) for each in schema["anyOf"]]
        return [] if not all(found) else min(found, key=len)
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{where}: expected {kind}, found {value!r}"[:200]]
    if kind == "array" and "items" in schema:
        return [line for i, one in enumerate(value) for line in _wrong(one, schema["items"], f"{where}[{i}]")]
    return _wrong_fields(value, schema, where) if kind == "object" else []


def _wrong_fields(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    wrong = [f"{where}.{name}: is missing" for name in schema.get("required", []) if name not in value]
    wrong += [f"{where}.{name}: is not in the schema" for name in value if more is False and name not in known]
    for name, field in value.items():
        of_field = known.get(name, more)
        if isinstance(of_field, dict):
            wrong += _wrong(field, of_field, f"{where}.{name}")
    return wrong
