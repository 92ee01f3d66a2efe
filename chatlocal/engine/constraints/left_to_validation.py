"""What a spec asks for and no grammar enforces, known without a tokenizer."""

from __future__ import annotations

import json
from functools import lru_cache

from chatlocal.engine.constraints.normalise import normalise
from chatlocal.engine.constraints.spec import Spec, inner


@lru_cache(maxsize=64)
def left_to_validation(spec: Spec) -> tuple[str, ...]:
    """What the Constraint of this spec has under that name. UnsupportedSchema for a schema that cannot be compiled.

    Up to a few hundred milliseconds for the largest schemas, once.
    """
    return tuple(dict.fromkeys(_left(spec)))


def _left(spec: Spec) -> list[str]:
    if spec.kind == "json_schema":
        spans = spec.text is not None
        return list(normalise(json.loads(spec.source), closed=spec.closed, spans=spans).left_to_validation)
    if spec.kind == "marked":
        source = json.loads(spec.source)
        schemas = (normalise(schema, closed=spec.closed) for schema in source["schemas"].values())
        return [*source["left"], *(one for schema in schemas for one in schema.left_to_validation)]
    return [one for each in _inside(spec) for one in left_to_validation(each)]


def _inside(spec: Spec) -> list[Spec]:
    """The specs that stand in the source of this one."""
    if spec.kind == "either":
        return [inner(fields) for fields in json.loads(spec.source)]
    if spec.kind == "free_text":
        return [inner(opening["spec"]) for opening in json.loads(spec.source)["openings"]]
    if spec.kind == "thinking":
        return [inner(json.loads(spec.source)["spec"])]
    return []
