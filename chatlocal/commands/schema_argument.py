"""What `--schema` names: a class of a module or a Python file, or a JSON Schema in a file."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any, get_origin

from chatlocal.engine.errors import UnsupportedInput

_FORMS = "module:Name, path/to/file.py:Name or path/to/schema.json"


def read_schema(name: str, many: bool = False) -> Any:
    """The class, type or JSON Schema that a name stands for, or a list of it; UnsupportedInput where there is none.

    Modules are also looked for in the current folder, and beside a file that is named.
    """
    found = _named(name)
    if not many:
        return found
    if isinstance(found, dict):
        # References to definitions begin at the root.
        shared = {key: found[key] for key in ("$schema", "$defs", "definitions") if key in found}
        return {**shared, "type": "array", "items": {key: found[key] for key in found if key not in shared}}
    if get_origin(found) is list or isinstance(found, list | tuple):
        raise UnsupportedInput(f"{name} is a list already: leave out --many.")
    return GenericAlias(list, (found,))


def _named(name: str) -> Any:
    if name.endswith(".json"):
        return _json_schema(Path(name))
    source, colon, attribute = name.rpartition(":")
    if not colon or not source or not attribute:
        raise UnsupportedInput(f"--schema takes {_FORMS}, got {name!r}.")
    module = _file(Path(source)) if source.endswith(".py") else _module(source)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise UnsupportedInput(f"{source} has no {attribute!r}.") from error
    return found


def _json_schema(path: Path) -> Any:
    try:
        schema = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UnsupportedInput(f"The schema {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UnsupportedInput(f"The schema {path} is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise UnsupportedInput(f"The schema {path} is not an object, as a JSON Schema of records is.")
    return schema


def _module(name: str) -> ModuleType:
    _search_in(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UnsupportedInput(f"The module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _file(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UnsupportedInput(f"There is no Python file {path}.")
    _search_in(str(path.parent.resolve()))
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # Pydantic looks there for what annotations name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise UnsupportedInput(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module


def _search_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
