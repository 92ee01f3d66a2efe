"""Where a `$ref` leads. Only inside the schema itself: nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from chatlocal.engine.errors import UnsupportedSchema

# Keywords whose subschemas speak of the same value as the schema they stand in.
IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_SINGLE = ("if", "then", "else", "not")

# Keywords whose value is data, in which nothing is a schema.
_DATA = ("enum", "const", "default", "examples", "example")


class References:
    """The reference targets of one schema. A pointer is a JSON pointer from the root: "" or "/$defs/Node"."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._base = _identifier(root)
        self._named: dict[str, str] = {}
        self._collect(root, "", self._base)
        self._sound: set[str] = set()

    def pointer(self, ref: str, path: str) -> str:
        """The pointer that a `$ref` at `path` means. UnsupportedSchema when it leads outside or nowhere."""
        if not isinstance(ref, str):
            raise UnsupportedSchema("$ref", path, f"a reference is a text, got {ref!r}")
        target = urljoin(self._base, ref) if self._base else ref
        name, _, fragment = target.partition("#")
        if fragment and not fragment.startswith("/"):
            fragment, name = "", f"{name}#{fragment}"
        if name and name.rstrip("#") != self._base.rstrip("#"):
            if name not in self._named:
                raise UnsupportedSchema("$ref", path, f"{ref!r} leads outside the schema: put the definition into it")
            base = self._named[name]
        else:
            base = ""
        pointer = base + unquote(fragment)
        try:
            self.target(pointer)
        except (LookupError, ValueError, TypeError):
            raise UnsupportedSchema("$ref", path, f"{ref!r} leads to nothing in the schema") from None
        return pointer

    def target(self, pointer: str) -> Any:
        """The schema at a pointer. LookupError, ValueError or TypeError when there is none."""
        node: Any = self._root
        for part in pointer.split("/")[1:]:
            part = unescape(part)
            node = node[int(part)] if isinstance(node, list) else node[part]
        if not isinstance(node, (dict, bool)):
            raise LookupError(pointer)
        return node

    def check_cycle(self, pointer: str, path: str) -> None:
        """UnsupportedSchema when a definition means itself before it says anything: no text could be checked by it."""
        open_: list[str] = []

        def visit(pointer: str) -> None:
            if pointer in open_:
                raise UnsupportedSchema("$ref", path, f"the definition {pointer or '#'!r} refers to nothing but itself")
            if pointer not in self._sound:
                open_.append(pointer)
                for ref in _in_place_refs(self.target(pointer)):
                    visit(self.pointer(ref, path))
                self._sound.add(open_.pop())

        visit(pointer)

    def _collect(self, node: Any, pointer: str, base: str) -> None:
        """Names by `$id`, `$anchor` and the older `id`."""
        if isinstance(node, list):
            for place, child in enumerate(node):
                self._collect(child, f"{pointer}/{place}", base)
        if not isinstance(node, dict):
            return
        identifier = _identifier(node)
        if identifier and pointer:
            name = urljoin(base, identifier)
            self._named.setdefault(name, pointer)
            self._named.setdefault(identifier, pointer)
            base = base if identifier.startswith("#") else name
        anchor = node.get("$anchor")
        if isinstance(anchor, str):
            self._named.setdefault(f"{base.rstrip('#')}#{anchor}", pointer)
        for key, child in node.items():
            if key not in _DATA:
                self._collect(child, f"{pointer}/{escape(key)}", base)


def escape(key: str) -> str:
    """A key as one part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(part: str) -> str:
    """What `escape` made one part of a JSON pointer of."""
    return part.replace("~1", "/").replace("~0", "~")


def _identifier(node: dict[str, Any]) -> str:
    for key in ("$id", "id"):
        if isinstance(node.get(key), str):
            return str(node[key])
    return ""


def _in_place_refs(node: Any) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    if isinstance(node.get("$ref"), str):
        yield node["$ref"]
    for key in IN_PLACE_LISTS:
        for child in node.get(key) or ():
            yield from _in_place_refs(child)
    for key in IN_PLACE_SINGLE:
        yield from _in_place_refs(node.get(key))
    for key in ("dependentSchemas", "dependencies"):
        for child in (node.get(key) or {}).values():
            yield from _in_place_refs(child)
