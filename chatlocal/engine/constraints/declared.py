"""What a schema says about the keys of an object, itself and through allOf, anyOf, $ref and the like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chatlocal.engine.constraints.references import References


@dataclass(slots=True)
class Declared:
    """`names` in order: the schema's own properties, those of its parts as they come, those that are only required.

    `required` are the names that every valid object has.

    `closable`: it declares properties in a part that holds for every object, so that undeclared keys can be kept out.
    `explicit`: such a part says itself what other keys may be.
    """

    names: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    closable: bool = False
    explicit: bool = False
    somewhere: bool = False  # properties are declared, perhaps in one alternative only


def declared(schema: Any, refs: References, path: str, known: dict[str, Declared] | None = None) -> Declared:
    """Read a schema and everything that speaks of the same value. UnsupportedSchema for a broken reference.

    `known` are the definitions that were read already, by their pointers.
    """
    found = Declared()
    known = {} if known is None else known
    if not isinstance(schema, dict):
        return found
    found.names |= dict.fromkeys(schema.get("properties", ()))
    undeclared: dict[str, None] = {}
    whole = False  # a part that is combined with others, so that the alternatives cannot close themselves
    for key, value in schema.items():
        if key == "properties":
            found.closable = found.somewhere = True
        elif key == "required" and isinstance(value, list):
            undeclared |= dict.fromkeys(value)
            found.required |= set(value)
            whole = whole or bool(value)
        elif key == "patternProperties":
            found.patterns |= dict.fromkeys(value)
        elif key in ("additionalProperties", "unevaluatedProperties"):
            found.explicit = True
        for part, certain in parts(key, value):
            if key == "$ref":
                pointer = refs.pointer(value, path)
                refs.check_cycle(pointer, path)
                if pointer not in known:
                    known[pointer] = declared(refs.target(pointer), refs, path, known)
                inner = known[pointer]
            else:
                inner = declared(part, refs, path, known)
            found.names |= inner.names
            found.patterns |= inner.patterns
            found.somewhere |= inner.somewhere
            if certain:
                found.required |= inner.required
                found.explicit |= inner.explicit
                whole = whole or inner.somewhere
        if key in ("dependentRequired", "dependencies"):
            for trigger, names in value.items():
                undeclared |= dict.fromkeys([trigger, *(names if isinstance(names, list) else ())])
    found.names |= undeclared
    found.closable |= whole and found.somewhere
    return found


def parts(key: str, value: Any) -> Iterator[tuple[Any, bool]]:
    """The subschemas under a keyword that speak of the same value, and whether every valid value meets them."""
    if key == "$ref":
        yield value, True
    elif key in ("allOf", "anyOf", "oneOf"):
        yield from ((child, key == "allOf") for child in value)
    elif key in ("if", "then", "else"):
        yield value, False
    elif key in ("dependentSchemas", "dependencies"):
        yield from ((child, False) for child in value.values() if isinstance(child, dict))
