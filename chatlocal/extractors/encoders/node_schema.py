"""The JSON Schema of the data of a node.

Kor's attributes are all optional, and a small model that may leave something out leaves out all. So an attribute is
left out only where an example shows it; it can be null instead.
"""

from __future__ import annotations

from typing import Any

from chatlocal.extractors.node_examples import below, may_be_absent, records_of
from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection, Text

Records = list[dict[str, Any]]


def answer_schema(node: Object, record: dict[str, Any] | None = None) -> dict[str, Any]:
    """{id: data}. `record` is the schema of one record where the attributes do not say all, its $defs among it."""
    definitions = {} if record is None else {key: record[key] for key in ("$defs",) if key in record}
    one = _object(node, records_of(node)) if record is None else _without(record, "$defs")
    data = {"type": "array", "items": one} if node.many else one
    return {"type": "object", "properties": {node.id: data}, "required": [node.id], **definitions}


def _without(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _schema(node: Node, records: Records) -> dict[str, Any]:
    """Of an attribute; `records` are the examples' records that it stands in."""
    one = _one(node, below(node, records))
    if node.many:
        return {"type": "array", "items": one}
    return one if node.required else {"anyOf": [one, {"type": "null"}]}


def _one(node: Node, records: Records) -> dict[str, Any]:
    if isinstance(node, Object):
        return _object(node, records)
    if isinstance(node, Dictionary):
        value = node.value.model_copy(update={"required": True})
        return {"type": "object", "additionalProperties": _schema(value, [])}
    if isinstance(node, Selection):
        return {"enum": [option.means for option in node.options]}
    if isinstance(node, Number):
        return {"type": "integer" if node.whole else "number"}
    if isinstance(node, Bool):
        return {"type": "boolean"}
    assert isinstance(node, Text)
    return {"type": "string"}


def _object(node: Object, records: Records) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {attribute.id: _schema(attribute, records) for attribute in node.attributes},
        "required": [attribute.id for attribute in node.attributes if not may_be_absent(attribute, records)],
        "additionalProperties": False,
    }
