"""Schemas with documents that are known to be valid and invalid, and each document as a constrained model writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema.protocols import Validator

from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.constraints.plain_text import plain_encoder
from chatlocal.engine.constraints.vocabulary import read_vocabulary


@dataclass(frozen=True)
class Document:
    """Its keys are in declared order; `pieces` are the bytes of each id.

    `broken` are the keywords that an invalid document breaks.
    """

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    valid: bool
    broken: frozenset[str]


@dataclass(frozen=True)
class Sample:
    """`unspelled` is how many documents are left out because the tokenizer cannot spell them."""

    id: str
    schema: Any
    documents: tuple[Document, ...]
    unspelled: int


class Reader:
    """Reads samples for a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        vocabulary = read_vocabulary(tokenizer)
        self._texts = tuple(b"" if id in vocabulary.control else text for id, text in enumerate(vocabulary.tokens))
        self._encode = plain_encoder(tokenizer, self._texts)

    def read(self, path: Path) -> list[Sample]:
        """Samples from a JSON list of {"id", "schema", "valid": [documents], "invalid": [documents]}."""
        return [self._sample(record) for record in json.loads(path.read_text(encoding="utf-8"))]

    def _sample(self, record: dict[str, Any]) -> Sample:
        root = checker(record["schema"])
        values = [(value, word == "valid") for word in ("valid", "invalid") for value in record[word]]
        documents = [self._document(value, valid, root) for value, valid in values]
        spelled = tuple(document for document in documents if document is not None)
        return Sample(record["id"], record["schema"], spelled, len(documents) - len(spelled))

    def _document(self, value: Any, valid: bool, root: Validator) -> Document | None:
        text = json.dumps(ordered(value, [root.schema], root), ensure_ascii=False)
        ids = tuple(self._encode(text))
        pieces = tuple(self._texts[id] for id in ids)
        if b"".join(pieces) != text.encode():
            return None
        broken = frozenset() if valid else frozenset(str(error.validator) for error in root.iter_errors(value))
        return Document(ids, pieces, valid, broken)


def ordered(value: Any, schemas: list[Any], root: Validator) -> Any:
    """The value with the keys of its objects as these schemas of it declare them, the undeclared last.

    Every grammar engine fixes this order, so that a document in another one says nothing about the engine.
    """
    nodes = [node for schema in schemas for node in same_place(value, schema, root, frozenset())]
    if isinstance(value, list):
        return [ordered(item, of_item(nodes, place), root) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    declared = [
        key for word in ("properties", "required", "dependencies") for node in nodes for key in node.get(word, ())
    ]
    keys = dict.fromkeys([key for key in declared if key in value] + list(value))
    return {key: ordered(value[key], of_key(nodes, key), root) for key in keys}


def same_place(value: Any, schema: Any, root: Validator, followed: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The schema and its parts that speak of the same value."""
    if not isinstance(schema, dict):
        return
    yield schema
    for word, part in schema.items():
        parts: list[Any] = []
        if word == "$ref" and isinstance(part, str) and part not in followed:
            followed |= {part}
            parts = [target(part, root.schema)]
        elif word in ("anyOf", "oneOf") and schema.keys().isdisjoint({"properties", "required", "allOf"}):
            parts = [option for option in part if root.evolve(schema=option).is_valid(value)][:1]  # its order counts
        elif word in ("allOf", "anyOf", "oneOf"):
            parts = part
        elif word in ("if", "then", "else"):
            parts = [part]
        elif word in ("dependencies", "dependentSchemas"):
            parts = list(part.values())
        for each in parts:
            yield from same_place(value, each, root, followed)


def target(reference: str, root: Any) -> Any:
    node = root
    for step in reference.partition("#")[2].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def of_key(nodes: list[dict[str, Any]], key: str) -> list[Any]:
    found = [node["properties"][key] for node in nodes if key in node.get("properties", {})]
    for node in nodes:
        found += [part for pattern, part in node.get("patternProperties", {}).items() if re.search(pattern, key)]
        if key not in node.get("properties", {}):
            found.append(node.get("additionalProperties"))
    return found


def of_item(nodes: list[dict[str, Any]], place: int) -> list[Any]:
    found = []
    for node in nodes:
        items = node.get("items")
        first, rest = (items, node.get("additionalItems")) if isinstance(items, list) else ([], items)
        first = node.get("prefixItems", first)
        found.append(first[place] if place < len(first) else rest)
    return found
