"""Encodings of extracted data: csv, json and xml, each with its writing, its reading and its grammar in one file."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.encoders.csv import CSVEncoder
from chatlocal.extractors.encoders.encoder import Encoder, ParseError, UnsupportedNode
from chatlocal.extractors.encoders.json import JSONEncoder
from chatlocal.extractors.encoders.xml import XMLEncoder
from chatlocal.extractors.nodes import Object

__all__ = ["CSVEncoder", "Encoder", "JSONEncoder", "ParseError", "UnsupportedNode", "XMLEncoder", "encoder_for"]

_ENCODERS: dict[str, type[Any]] = {"csv": CSVEncoder, "json": JSONEncoder, "xml": XMLEncoder}


def encoder_for(encoder: Any, node: Object, **settings: Any) -> Any:
    """The encoder of a node by name, by class (of chatlocal, of your own or of Kor) or as it is.

    UnsupportedInput for anything else, and for settings that it does not have.
    """
    if isinstance(encoder, str):
        if encoder.lower() not in _ENCODERS:
            raise UnsupportedInput(f"Unknown encoder {encoder!r}: use one of {', '.join(_ENCODERS)}.")
        encoder = _ENCODERS[encoder.lower()]
    if isinstance(encoder, type):
        return _built(encoder, node, settings)
    if settings:
        raise UnsupportedInput(f"The encoder is there already, and cannot take {', '.join(sorted(settings))} any more.")
    if isinstance(encoder, (JSONEncoder, XMLEncoder)) and encoder.node is None:
        return dataclasses.replace(encoder, node=node)
    return _checked(encoder)


def _built(kind: type[Any], node: Object, settings: dict[str, Any]) -> Any:
    parameters = inspect.signature(kind).parameters
    taken = {"node": node} if "node" in parameters else {}
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [] if open_ended else sorted(set(settings) - set(parameters) | set(settings) & {"node"})
    if unknown:
        raise UnsupportedInput(f"{kind.__name__} does not take {', '.join(unknown)}: it takes {', '.join(parameters)}.")
    return _checked(kind(**taken, **settings))


def _checked(encoder: Any) -> Any:
    if not all(callable(getattr(encoder, name, None)) for name in ("encode", "decode", "get_instruction_segment")):
        raise UnsupportedInput(
            "An encoder is 'csv', 'json', 'xml', or an object or class with encode, decode and"
            f" get_instruction_segment, got {encoder!r:.80}."
        )
    return encoder
