"""Finding the elements of a node in an answer, with whatever the model wrote around them.

Not a reader of XML: it goes by the names that the schema has. Closing tags may be missing, other tags in a text are
text, entities are what they stand for, and of attributes inside of tags those are read that the schema has.
"""

from __future__ import annotations

import html
import re
from typing import Any

from chatlocal.extractors.encoders.encoder import ParseError
from chatlocal.extractors.nodes import Dictionary, Node, Object

_TAG = re.compile(r"<(/?)\s*([^\s<>/&\"'=!?]+)(?:\s[^<>]*?)?(/?)>")
_ATTRIBUTE = re.compile(r"""([^\s<>/&"'=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_STRAY_CLOSING = re.compile(r"</[^<>]*>\s*$")
_DATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)


def read_elements(text: str, node: Object) -> dict[str, Any]:
    """{id: data}, a list where the node has many. ParseError where the text has no element of that name."""
    written = _COMMENT.sub("", text)
    if f"<{node.id}".lower() not in written.lower():
        written = html.unescape(written)  # all of it may have been escaped
    reader = _Reader(written, node)
    found = []
    while reader.find(node.id):
        found.append(reader.element(node, (node.id.lower(),)))
    closed = re.search(rf"</\s*{re.escape(node.id)}\s*>|<{re.escape(node.id)}\s*/>", written, re.IGNORECASE)
    if not found or (not any(found) and not closed):
        why = (
            "The answer is empty."
            if not text.strip()
            else f"There is no <{node.id}> in the answer that holds anything."
        )
        raise ParseError(f"{why} More examples may help the model.", text)
    # A tag that is only spoken of has nothing in it but text, and a record has elements.
    records = [each for each in found if isinstance(each, dict) and each] or found[:1]
    if node.many:
        return {node.id: [] if records == [{}] else records}
    return {node.id: records[0] if len(records) == 1 else records}


class _Reader:
    def __init__(self, text: str, node: Node) -> None:
        self._text = text
        self._place = 0
        self._known = set(_names(node))

    def find(self, name: str) -> bool:
        """Go to the next opening tag of a name."""
        for tag in _TAG.finditer(self._text, self._place):
            if not tag[1] and tag[2].lower() == name.lower():
                self._place = tag.start()
                return True
        return False

    def element(self, node: Node | None, within: tuple[str, ...]) -> Any:
        """The value of the element that begins here, and go behind it; `within` are the names of those it is in."""
        tag = _TAG.match(self._text, self._place)
        assert tag is not None
        self._place = tag.end()
        if isinstance(node, (Object, Dictionary)):
            inside = {} if tag[3] else self._members(node, within)
            return {**_values_in(tag[0], node), **inside} if isinstance(inside, dict) else inside
        if tag[3]:  # <name/>
            return ""
        if node is None:
            return self._unknown(tag[2])
        return self._leaf(tag[2].lower(), within)

    def _members(self, node: Object | Dictionary, within: tuple[str, ...]) -> Any:
        known = {child.id.lower(): child for child in node.attributes} if isinstance(node, Object) else {}
        found: dict[str, list[Any]] = {}
        begin = self._place
        while True:
            tag = _TAG.search(self._text, self._place)
            if tag is None:
                end = self._place = len(self._text)
                break
            end, name = tag.start(), tag[2].lower()
            if tag[1]:
                # Another closing tag than its own: of what this stands in, so that its own is missing, or of nothing.
                self._place = tag.start() if name in within[:-1] and name != within[-1] else tag.end()
                if name in within:
                    break
                continue
            child = known.get(name) if isinstance(node, Object) else node.value
            if child is None and name in within:  # the next one begins, and the closing tag is missing
                self._place = end
                break
            if child is None and not self._closing(name, tag.end()):
                self._place = tag.end()
                continue
            self._place = end
            key = tag[2] if child is None or isinstance(node, Dictionary) else child.id
            found.setdefault(key, []).append(self.element(child, (*within, name)))
        if not found:
            return _plain(self._text[begin:end]) or {}
        return {key: self._shaped(known.get(key.lower()), values, node) for key, values in found.items()}

    @staticmethod
    def _shaped(child: Node | None, values: list[Any], node: Node) -> Any:
        """A list where there are many, and where there are several although there should be one."""
        child = node.value if isinstance(node, Dictionary) else child
        if child is not None and child.many:
            return [] if values in ([""], [{}]) else values
        return values[0] if len(values) == 1 else values

    def _closing(self, name: str, place: int) -> re.Match[str] | None:
        return re.compile(rf"</\s*{re.escape(name)}\s*>", re.IGNORECASE).search(self._text, place)

    def _unknown(self, name: str) -> str:
        """An element that the schema does not have, and that has a closing tag: it is kept, as text."""
        closing = self._closing(name, self._place)
        assert closing is not None  # who calls has looked
        inside = self._text[self._place : closing.start()]
        self._place = closing.end()
        return _plain(inside)

    def _leaf(self, name: str, within: tuple[str, ...]) -> str:
        """Text up to the closing tag; where that is missing, up to the next tag that the schema knows."""
        begin = self._place
        end: int | None = None
        for tag in _TAG.finditer(self._text, begin):
            here = tag[2].lower()
            if here == name and tag[1]:
                self._place = tag.end()
                return _plain(self._text[begin : tag.start()])
            if end is None and (here in within or (here in self._known and not tag[1])):
                end = tag.start()
            if here in within:
                break
        self._place = len(self._text) if end is None else end
        # Without the tag of another name that may stand in the place of its own.
        return _plain(_STRAY_CLOSING.sub("", self._text[begin : self._place]))


def _values_in(tag: str, node: Object | Dictionary) -> dict[str, Any]:
    """What a tag says of the schema's attributes in attributes of its own: <dog name="Harry">."""
    known = {child.id.lower(): child for child in node.attributes} if isinstance(node, Object) else {}
    found: dict[str, Any] = {}
    for name, double, single in _ATTRIBUTE.findall(tag):
        child = known.get(name.lower())
        if child is not None:
            value = html.unescape(double or single).strip()
            found[child.id] = [value] if child.many else value
    return found


def _names(node: Node) -> list[str]:
    children = node.attributes if isinstance(node, Object) else [node.value] if isinstance(node, Dictionary) else []
    return [node.id.lower(), *(name for child in children for name in _names(child))]


def _plain(inside: str) -> str:
    """Text with its entities resolved; what stands in CDATA is taken as it is."""
    parts = _DATA.split(inside)
    return "".join(part if place % 2 else html.unescape(part) for place, part in enumerate(parts)).strip()
