"""Specs made to cost time or memory: each compiles or is refused by name, soon. Run as a program it tries them.

The program reads the names of cases, a line each, and answers each with a line of JSON. A case runs in a child of its
own, under limits, which starts with everything imported.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 20
BYTES = 2 << 30


def nested(depth: int, around: Callable[[Any], Any], core: Any) -> Any:
    for _ in range(depth):
        core = around(core)
    return core


def chain(length: int, last: Any) -> dict[str, Any]:
    definitions = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": last}}


def ring(length: int, key: str) -> dict[str, Any]:
    """Definitions that lead in a circle, each by way of a keyword, and say nothing."""
    definitions = {
        f"d{number}": {key: [{"$ref": f"#/$defs/d{(number + 1) % length}"}, {"$ref": f"#/$defs/d{number // 2}"}]}
        for number in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def objects_of(names: list[str], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}


def tree(width: int, depth: int) -> Any:
    """Objects of objects, each level under names of its own."""
    if depth == 0:
        return {"type": "integer"}
    names = [f"{depth}-{number}" for number in range(width)]
    return {"type": "object", "properties": {name: tree(width, depth - 1) for name in names}, "required": names}


def choices(options: int, sets: int, key: str) -> dict[str, Any]:
    """So many choices, all of which must be made at once."""
    return {
        "allOf": [{key: [{"required": [f"k{number}-{option}"]} for option in range(options)]} for number in range(sets)]
    }


SCHEMAS: dict[str, Callable[[], Any]] = {
    # bounds
    "maxLength 10^9": lambda: {"type": "string", "maxLength": 10**9},
    "minLength 10^9": lambda: {"type": "string", "minLength": 10**9},
    "minLength 10^5": lambda: {"type": "string", "minLength": 10**5},
    "lengths 10^6 to 10^6": lambda: {"type": "string", "minLength": 10**6, "maxLength": 10**6},
    "maxItems 10^6": lambda: {"type": "array", "items": {"type": "integer"}, "maxItems": 10**6},
    "minItems 10^5": lambda: {"type": "array", "items": {"type": "integer"}, "minItems": 10**5},
    "minItems 1000 of 1000": lambda: {
        "type": "array",
        "minItems": 1000,
        "items": {"type": "array", "minItems": 1000, "items": {"type": "null"}},
    },
    "maxItems of maxItems": lambda: nested(
        6, lambda core: {"type": "array", "items": core, "maxItems": 1000}, {"type": "null"}
    ),
    "minProperties 10^5": lambda: {"type": "object", "minProperties": 10**5},
    "minimum -10^300": lambda: {"type": "number", "minimum": -(10**300)},
    "integers from -10^300 to 10^300": lambda: {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    "integers above 10^300": lambda: {"type": "integer", "minimum": 10**300},
    "integers between odd bounds": lambda: {"type": "integer", "minimum": -123456789012345, "maximum": 98765432109876},
    "fractions between odd bounds": lambda: {"type": "number", "minimum": 1.2345678901234, "maximum": 9876543.2109876},
    "multiples of 999983": lambda: {"type": "integer", "multipleOf": 999983},
    "multiples of 199999": lambda: {"type": "integer", "multipleOf": 199_999},
    "multiples of many numbers": lambda: {
        "allOf": [{"type": "integer", "multipleOf": step} for step in (7, 11, 13, 17, 19, 23, 29, 31)]
    },
    "multiples of 10^-300": lambda: {"type": "number", "multipleOf": 1e-300},
    # patterns
    "(a|b)*a(a|b){30}": lambda: {"type": "string", "pattern": "^(a|b)*a(a|b){30}$"},
    "(a*)*b": lambda: {"type": "string", "pattern": "^(a*)*b$"},
    "(a+)+ nested 30 times": lambda: {"type": "string", "pattern": nested(30, lambda core: f"({core}+)+", "a")},
    "a{1000}{1000}{1000}": lambda: {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"},
    "x{0,20000}": lambda: {"type": "string", "pattern": "^x{0,20000}$"},
    "\\w{1,500}@\\w{1,500}": lambda: {"type": "string", "pattern": r"^\w{1,500}@\w{1,500}$"},
    "brackets 2,000 deep": lambda: {"type": "string", "pattern": "(" * 2000 + "a" + ")" * 2000},
    "2,000 alternatives": lambda: {"type": "string", "pattern": "|".join(f"word{n}x*" for n in range(2000))},
    "many patterns at once": lambda: {"type": "string", "allOf": [{"pattern": f"[a-m]{{{n}}}"} for n in range(1, 14)]},
    "a pattern and a length": lambda: {"type": "string", "pattern": "^(ab|c)*$", "minLength": 5000, "maxLength": 5001},
    "500 strings with patterns": lambda: {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "pattern": f"^[a-z]{{1,{n % 40 + 1}}}-{n}$"} for n in range(500)},
        "required": [f"p{n}" for n in range(500)],
    },
    # depth
    "objects 1,000 deep": lambda: nested(
        1000, lambda core: {"type": "object", "properties": {"a": core}, "required": ["a"]}, {"type": "null"}
    ),
    "objects 120 deep": lambda: nested(
        120, lambda core: {"type": "object", "properties": {"a": core}, "required": ["a"]}, {"type": "null"}
    ),
    "arrays 5,000 deep": lambda: nested(5000, lambda core: {"type": "array", "items": core}, {"type": "null"}),
    "anyOf 1,000 deep": lambda: nested(1000, lambda core: {"anyOf": [{"type": "null"}, core]}, {"type": "string"}),
    "allOf 1,000 deep": lambda: nested(1000, lambda core: {"allOf": [{"minimum": 1}, core]}, {"type": "integer"}),
    "not 999 deep": lambda: nested(999, lambda core: {"not": core}, {"type": "string"}),
    "references 1,000 long": lambda: chain(1000, {"type": "integer"}),
    "references 20,000 long": lambda: chain(20_000, {"type": "integer"}),
    # circles
    "a definition that is itself": lambda: {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "1,000 definitions in a ring": lambda: chain(999, {"$ref": "#/$defs/d0"}),
    "anyOf in a ring": lambda: ring(100, "anyOf"),
    "allOf in a ring": lambda: ring(100, "allOf"),
    "endless objects": lambda: {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "endless arrays": lambda: {"type": "array", "items": {"$ref": "#"}, "minItems": 2},
    "60 mutual definitions": lambda: {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{number}": {
                "type": "object",
                "properties": {f"p{other}": {"$ref": f"#/$defs/d{other}"} for other in range(60)},
                "required": [f"p{(number + 1) % 60}"] if number < 59 else [],
            }
            for number in range(60)
        },
    },
    "recursive allOf": lambda: {
        "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"more": {"$ref": "#"}}}],
        "$defs": {"a": {"type": "object", "properties": {"one": {"$ref": "#"}, "two": {"$ref": "#/$defs/a"}}}},
    },
    # explosions
    "allOf of 40 anyOf": lambda: choices(4, 40, "anyOf"),
    "allOf of 40 oneOf": lambda: choices(4, 40, "oneOf"),
    "oneOf of 300 that overlap": lambda: {"oneOf": [objects_of(["a", f"b{n}"], required=["a"]) for n in range(300)]},
    "oneOf of 300 with a tag": lambda: {
        "oneOf": [
            {"type": "object", "properties": {"t": {"const": n}, f"p{n}": {}}, "required": ["t"]} for n in range(300)
        ]
    },
    "anyOf of 3,000": lambda: {"anyOf": [objects_of([f"a{n}", f"b{n}"], required=[f"a{n}"]) for n in range(3000)]},
    "if in if": lambda: nested(
        14, lambda core: {"if": {"required": ["a"]}, "then": core, "else": core}, {"type": "object"}
    ),
    "dependencies of all on all": lambda: objects_of(
        [f"k{n}" for n in range(30)],
        dependentRequired={f"k{n}": [f"k{m}" for m in range(30) if m != n] for n in range(30)},
    ),
    "definitions that double": lambda: {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{
                f"d{n}": {
                    "type": "array",
                    "prefixItems": [{"$ref": f"#/$defs/d{n + 1}"}] * 2,
                    "minItems": 2,
                    "items": False,
                }
                for n in range(40)
            },
            "d40": {"type": "null"},
        },
    },
    "allOf that doubles": lambda: {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
            "d40": {"type": "null"},
        },
    },
    "minProperties of 200 optional keys": lambda: objects_of([f"k{n}" for n in range(200)], minProperties=100),
    # size
    "enum of 50,000": lambda: {"enum": [f"value number {n}" for n in range(50_000)]},
    "enum of 20,000 beside a pattern": lambda: {
        "type": "string",
        "pattern": "7$",
        "enum": [str(n) for n in range(20_000)],
    },
    "not an enum of 5,000": lambda: {"type": "string", "not": {"enum": [f"value number {n}" for n in range(5000)]}},
    "an enum of 300,000 characters": lambda: {"enum": ["x" * 300_000, "y"]},
    "2,000 properties, optional": lambda: objects_of([f"property{n}" for n in range(2000)]),
    "2,000 properties, required": lambda: objects_of(
        [f"property{n}" for n in range(2000)], required=[f"property{n}" for n in range(2000)]
    ),
    "a key of 30,000 characters": lambda: objects_of(["k" * 30_000], required=["k" * 30_000]),
    "a tree of 10,000 objects": lambda: tree(10, 4),
    "patternProperties soup": lambda: {
        "type": "object",
        "patternProperties": {f"^[a-{chr(98 + n % 25)}]*{n}.*$": {"type": "integer", "minimum": n} for n in range(60)},
        "additionalProperties": {"type": "string"},
    },
    "patternProperties that overlap": lambda: {
        "type": "object",
        "patternProperties": {f"a{{{n}}}": {"type": "string", "maxLength": n} for n in range(1, 12)},
    },
    "propertyNames of a large pattern": lambda: {
        "type": "object",
        "propertyNames": {"pattern": r"^(\w{1,60}-){1,60}\w$"},
        "minProperties": 3,
    },
}
REGEXES = {
    "regex (a|b)*a(a|b){30}": "(a|b)*a(a|b){30}",
    "regex .{0,5000}": ".{0,5000}",
    "regex \\w{2000}": r"\w{2000}",
    "regex (x+x+)+y": "(x+x+)+y",
    "regex ((a{99}){99}){99}": "((a{99}){99}){99}",
    "regex of 3,000 words": "|".join(f"word{n}" for n in range(3000)),
}
CASES = (*SCHEMAS, *REGEXES)
# Those that take a second or more.
HEAVY = {
    *("minItems 1000 of 1000", "multiples of 199999", "multiples of many numbers", "60 mutual definitions", "if in if"),
    *("anyOf of 3,000", "enum of 50,000", "enum of 20,000 beside a pattern", "an enum of 300,000 characters"),
    *(
        "a key of 30,000 characters",
        "a tree of 10,000 objects",
        "500 strings with patterns",
        "2,000 properties, required",
    ),
    *("2,000 properties, optional", "regex (a|b)*a(a|b){30}", "regex \\w{2000}", "minItems 10^5"),
}


def _attempt(name: str, tokenizer: Any) -> dict[str, Any]:
    """Compile, find the shortest text, and write some 60 random tokens: how it went."""
    from chatlocal.engine import constraints
    from chatlocal.engine.errors import ChatLocalError

    source = REGEXES[name] if name in REGEXES else SCHEMAS[name]()
    begun = time.monotonic()
    answer: dict[str, Any] = {}
    try:
        spec = constraints.regex(source) if name in REGEXES else constraints.json_schema(source)
        constraint = constraints.compile(spec, tokenizer)
        answer["compile"] = round(time.monotonic() - begun, 2)
        way = constraint.shortest
        answer["shortest"] = None if way is None else len(way)
        _write(constraint, None if way is None else len(way) + 60)
        answer["outcome"] = "written"
    except ChatLocalError as error:
        answer |= {"outcome": type(error).__name__, "message": str(error)[:200]}
    answer["seconds"] = round(time.monotonic() - begun, 2)
    answer["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return answer


def _write(constraint: Any, room: int | None) -> None:
    from chatlocal.engine.constraints import TokenBudget

    chosen = random.Random(0)
    budget = None if room is None else TokenBudget(constraint, room)
    state = constraint.start() if budget is None else budget.state
    for _ in range(60):
        id = chosen.choice(state.mask().nonzero().flatten().tolist())
        id = id if budget is None else budget.within_reach(id)
        state.advance(id)
        if state.done:
            break


def _in_child(name: str, tokenizer: Any) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            status = Path("/proc/self/status").read_text()
            data = next(line for line in status.splitlines() if line.startswith("VmData"))
            limit = int(data.split()[1]) * 1024 + BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            signal.alarm(SECONDS)  # ends the process, whatever it is in
            try:
                answer = _attempt(name, tokenizer)
            except BaseException as error:
                answer = {"outcome": f"not named: {type(error).__name__}", "message": str(error)[:300]}
            os.write(writer, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"outcome": f"ended after {SECONDS} s, or by its memory"}


def main() -> None:
    import chatlocal.engine.constraints.backends
    from tests.tiny import tiny_tokenizer

    chatlocal.engine.constraints.backends.backends()
    tokenizer = tiny_tokenizer()
    for line in sys.stdin:
        print(json.dumps(_in_child(json.loads(line), tokenizer)), flush=True)


if __name__ == "__main__":
    main()
