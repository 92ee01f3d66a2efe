"""Nodes of a Pydantic class, and the validator that makes instances of it."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from chatlocal.extractors.encoders.encoder import ParseError, UnsupportedNode
from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Option, Selection, Text

_LISTS = (list, tuple, set, frozenset, Sequence, Set, Iterable)
_DICTIONARIES = (dict, Mapping)


class Validator(ABC):
    """What makes validated data of the data of an answer."""

    @abstractmethod
    def clean_data(self, data: Any) -> tuple[Any, list[Exception]]:
        """The validated data of {id: data}, and what is wrong with the rest."""


class PydanticValidator(Validator):
    """Instances of a class: one, None where it does not validate; or a list of those that do, where there are many.

    Data may go by the names of fields or by their aliases.
    """

    def __init__(self, model_class: type[BaseModel], many: bool) -> None:
        self.model_class = model_class
        self.many = many
        # What these fields are where an answer has nothing for them, such as an empty cell.
        self._defaults = {
            name
            for name, field in model_class.model_fields.items()
            if not field.is_required() and type(None) not in _ways(field.annotation) and field.annotation is not Any
        }

    def clean_data(self, data: Any) -> tuple[Any, list[Exception]]:
        if not self.many:
            try:
                return self._instance(data), []
            except ValidationError as error:
                return None, [_parse_error(error, self.model_class, "The record")]
        if not isinstance(data, list):
            return [], [
                ParseError(f"The data should be a list of {self.model_class.__name__}, and is {data!r:.80}.", "")
            ]
        instances: list[Any] = []
        errors: list[Exception] = []
        for place, item in enumerate(data):
            try:
                instances.append(self._instance(item))
            except ValidationError as error:
                errors.append(_parse_error(error, self.model_class, f"The record at {place}"))
        return instances, errors

    def record_schema(self) -> dict[str, Any]:
        """The JSON Schema of one instance, by the names of fields."""
        return self.model_class.model_json_schema(by_alias=False)

    def _instance(self, data: Any) -> BaseModel:
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if value is not None or key not in self._defaults}
        return self.model_class.model_validate(data, by_alias=True, by_name=True)


def _parse_error(error: ValidationError, model: type[BaseModel], which: str) -> ParseError:
    faults = [f"{'.'.join(map(str, fault['loc'])) or 'the record'}: {fault['msg']}" for fault in error.errors()]
    problem = ParseError(f"{which} is no {model.__name__}: {'; '.join(faults)}.", "")
    problem.__cause__ = error
    return problem


def from_pydantic(
    model_class: type[BaseModel],
    *,
    description: str = "",
    examples: Sequence[tuple[str, Any]] = (),
    many: bool = False,
) -> tuple[Object, Validator]:
    """The nodes of a class, under its name in lower case, and the validator of its instances.

    Optional and `X | None`, Enum, Literal, nested classes, lists, dictionaries, Annotated and defaults are read. A
    field's examples are used where they are pairs of a text and a value; Pydantic's plain example values have no text
    that they come from. `examples` are pairs of a text and what it holds, as dicts or instances, a list where there
    are many. UnsupportedNode names a field whose type cannot be written as nodes.
    """
    if not model_class.__pydantic_complete__:
        model_class.model_rebuild()  # a name that is not defined is Pydantic's error
    node = _object(model_class, model_class.__name__.lower(), (), description=description, examples=examples, many=many)
    return node, PydanticValidator(model_class, many)


def _object(model: type[BaseModel], id: str, outer: tuple[type[Any], ...], **settings: Any) -> Object:
    if model in outer:
        raise UnsupportedNode(f"{model.__name__} has itself in it, and nodes end somewhere: use Extractor for it.")
    attributes = [_field(name, field, model, (*outer, model)) for name, field in model.model_fields.items()]
    return Object(id=id, attributes=tuple(attributes), **settings)


def _field(name: str, field: FieldInfo, model: type[BaseModel], outer: tuple[type[Any], ...]) -> Node:
    settings = {
        "description": field.description or "",
        "examples": tuple((pair[0], pair[1]) for pair in field.examples or () if _is_pair(pair)),
        "required": field.is_required() and type(None) not in _ways(field.annotation),
    }
    try:
        return _node(name, field.annotation, outer, settings)
    except UnsupportedNode as problem:
        if problem.__cause__ is not None:
            raise
        raise UnsupportedNode(f"{model.__name__}.{name}: {problem}") from problem


def _is_pair(example: Any) -> bool:
    return isinstance(example, (tuple, list)) and len(example) == 2 and isinstance(example[0], str)


def _node(id: str, annotation: Any, outer: tuple[type[Any], ...], settings: dict[str, Any]) -> Node:
    """The node of a type, None left out of it."""
    ways = [way for way in _ways(annotation) if way is not type(None)]
    if len(ways) == 1:
        return _single(id, ways[0], outer, settings)
    lists = [way for way in ways if _is_list(way)]
    if lists and len(ways) == 2:  # a value or a list of them is a list
        return _single(id, lists[0], outer, settings)
    if all(_kind(way) is Number for way in ways):
        return Number(id=id, whole=all(way is int for way in ways), **settings)
    if all(_kind(way) is Selection for way in ways):
        return Selection(id=id, options=tuple(option for way in ways for option in _options(way)), **settings)
    if not ways or not all(_kind(way) in (Text, Number, Bool, Selection) for way in ways):
        raise UnsupportedNode(f"a union of other things than single values ({annotation}) is no node: use Extractor.")
    return Text(id=id, mixed=True, **settings)


def _single(id: str, way: Any, outer: tuple[type[Any], ...], settings: dict[str, Any]) -> Node:
    if _is_list(way):
        if settings.get("many"):
            raise UnsupportedNode("a list of lists is no node: put the inner one into a class of its own.")
        items = [item for item in get_args(way) if item is not Ellipsis]
        item: Any = Union[tuple(items)] if items else Any  # noqa: UP007  (made of a list of types)
        return _node(id, item, outer, {**settings, "many": True})
    if _is_dictionary(way):
        values = get_args(way)[1] if len(get_args(way)) == 2 else Any
        return Dictionary(id=id, value=_node("value", values, outer, {}), **settings)
    if isinstance(way, type) and issubclass(way, BaseModel):
        return _object(way, id, outer, **settings)
    kind = _kind(way)
    if kind is Selection:
        return Selection(id=id, options=_options(way), **settings)
    if kind is Number:
        return Number(id=id, whole=issubclass(way, int), **settings)
    if kind is Bool:
        return Bool(id=id, **settings)
    if kind is Text:
        return Text(id=id, mixed=way is Any or way is object, **settings)
    raise UnsupportedNode(f"{way} is no kind of node: use Extractor.")


def _kind(way: Any) -> type[Node] | None:
    """The node of a single value; whatever else is a class is read by Pydantic from a string, a date say."""
    if get_origin(way) is Literal or (isinstance(way, type) and issubclass(way, Enum)):
        return (
            Bool if get_origin(way) is Literal and set(get_args(way)) <= {True, False} and _all_bool(way) else Selection
        )
    if way is Any:
        return Text
    if not isinstance(way, type) or issubclass(way, BaseModel) or _is_list(way) or _is_dictionary(way):
        return None
    if issubclass(way, bool):
        return Bool
    return Number if issubclass(way, (int, float, Decimal)) else Text


def _all_bool(way: Any) -> bool:
    return all(isinstance(value, bool) for value in get_args(way))


def _options(way: Any) -> tuple[Option, ...]:
    values = get_args(way) if get_origin(way) is Literal else [member.value for member in way]
    plain = [value.value if isinstance(value, Enum) else value for value in values if value is not None]
    return tuple(
        Option(id=value) if isinstance(value, str) and value else Option(id=str(value) or '""', value=value)
        for value in plain
    )


def _ways(annotation: Any) -> list[Any]:
    """The members of a union, without Annotated, NewType and names for types."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            break
    if get_origin(annotation) in (Union, types.UnionType):
        ways = [way for member in get_args(annotation) for way in _ways(member)]
        return [way for place, way in enumerate(ways) if way not in ways[:place]]
    if get_origin(annotation) is Literal and None in get_args(annotation):
        others = tuple(value for value in get_args(annotation) if value is not None)
        return [Literal[others], type(None)] if others else [type(None)]
    return [type(None) if annotation is None else annotation]


def _is_list(way: Any) -> bool:
    kind = get_origin(way) or way
    return isinstance(kind, type) and kind not in (str, bytes) and kind in _LISTS


def _is_dictionary(way: Any) -> bool:
    return (get_origin(way) or way) in _DICTIONARIES
