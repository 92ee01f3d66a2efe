"""The JSON Schema of the data of a node."""

from __future__ import annotations

from typing import Any

from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection, Text


def answer_schema(node: Object, record: dict[str, Any] | None = None) -> dict[str, Any]:
    """{id: data}. `record` is the schema of one record where the attributes do not say all, its $defs among it."""
    definitions = {} if record is None else {key: record[key] for key in ("$defs",) if key in record}
    one = _object(node) if record is None else {key: value for key, value in record.items() if key != "$defs"}
    data = {"type": "array", "items": one} if node.many else one
    return {"type": "object", "properties": {node.id: data}, "required": [node.id], **definitions}


def _schema(node: Node) -> dict[str, Any]:
    one = _one(node)
    return {"type": "array", "items": one} if node.many else one


def _one(node: Node) -> dict[str, Any]:
    if isinstance(node, Object):
        return _object(node)
    if isinstance(node, Dictionary):
        return {"type": "object", "additionalProperties": _schema(node.value)}
    if isinstance(node, Selection):
        return {"enum": [option.means for option in node.options]}
    if isinstance(node, Number):
        return {"type": "integer" if node.whole else "number"}
    if isinstance(node, Bool):
        return {"type": "boolean"}
    assert isinstance(node, Text)
    return {"type": "string"}


def _object(node: Object) -> dict[str, Any]:
    required = [attribute.id for attribute in node.attributes if attribute.required]
    return {
        "type": "object",
        "properties": {attribute.id: _schema(attribute) for attribute in node.attributes},
        "required": required,
        "additionalProperties": False,
    }
