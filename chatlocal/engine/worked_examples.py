"""Worked examples of answers in a form, about other things and in the shape that is asked for.

Small models copy the shape of what they saw: without it they take values from the examples, and lists do not end
(benchmarks/extraction.py measures it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.field_list import describe, resolve

_DEEPEST_SHELL = 4
_CHINESE = re.compile("[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Example:
    """A text, the JSON Schema of the answer that is asked for, and the answer."""

    text: str
    schema: dict[str, Any]
    answer: Any


@dataclass(frozen=True, slots=True)
class _Part:
    """One more sentence, and the field that holds what it says."""

    sentence: str
    name: str
    schema: dict[str, Any]
    value: Any


@dataclass(frozen=True, slots=True)
class _Story:
    """`one` tells of the first record alone, `several` of all; each names somebody or something beside them."""

    one: str
    several: str
    fields: dict[str, Any]
    records: tuple[dict[str, Any], ...]
    texts: _Part
    record: _Part
    list_of_records: _Part


def worked_examples(schema: Mapping[str, Any]) -> Iterator[Example]:
    """Two examples for an answer of this JSON Schema.

    What is wrapped around the record that is asked for is wrapped around theirs, where that is a list it holds several,
    and a record that holds texts, a record or a list of records has examples that do. Those of lists and of records
    with parts are in Chinese where names or descriptions of the schema are.
    """
    shell, record = _unwrapped(schema)
    kinds = _part_kinds(record, schema)
    chinese = not is_flat(schema) and _CHINESE.search(describe(schema))
    for story in _CHINESE_STORIES if chinese else _ENGLISH_STORIES:
        yield _listed(story, shell) if None in shell else _single(story, shell, kinds)


def is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether one record is asked for, and none of its fields is a list or a record."""
    shell, record = _unwrapped(schema)
    return None not in shell and not _part_kinds(record, schema)


def _listed(story: _Story, shell: tuple[str | None, ...]) -> Example:
    return _wrapped(story.several, story.fields, list(story.records), shell)


def _single(story: _Story, shell: tuple[str | None, ...], kinds: list[str]) -> Example:
    parts: list[_Part] = [getattr(story, kind) for kind in kinds]
    text = story.one + "".join(part.sentence for part in parts)
    fields = {**story.fields, **{part.name: part.schema for part in parts}}
    return _wrapped(text, fields, [{**story.records[0], **{part.name: part.value for part in parts}}], shell)


def _wrapped(text: str, fields: dict[str, Any], values: list[Any], shell: tuple[str | None, ...]) -> Example:
    schema = _record(fields)
    for key in reversed(shell):
        schema = {"type": "array", "items": schema} if key is None else _record({key: schema})
        values = [values] if key is None else [{key: value} for value in values]
    return Example(text, schema, values[0])


def _unwrapped(schema: Mapping[str, Any]) -> tuple[tuple[str | None, ...], dict[str, Any]]:
    """The record that is asked for, and what is wrapped around it: the key of an object with one field, None for a
    list."""
    shell: list[str | None] = []
    inner = resolve(schema, schema)
    while len(shell) < _DEEPEST_SHELL:
        properties = inner.get("properties") or {}
        if len(properties) == 1:
            [(key, value)] = properties.items()
            step: str | None = key
        elif inner.get("type") == "array" and inner.get("items"):
            step, value = None, inner["items"]
        else:
            break
        value = resolve(value, schema)
        if not (value.get("properties") or value.get("type") == "array"):
            break
        inner = value
        shell.append(step)
    return tuple(shell), inner


def _part_kinds(record: Mapping[str, Any], root: Mapping[str, Any]) -> list[str]:
    """The kinds of parts that a record has, as they are called in a _Story; each once, in the record's order."""
    kinds: dict[str, None] = {}
    for value in (record.get("properties") or {}).values():
        field = resolve(value, root)
        if field.get("properties"):
            kinds["record"] = None
        elif field.get("type") == "array":
            kinds["list_of_records" if resolve(field.get("items"), root).get("properties") else "texts"] = None
    return list(kinds)


def _record(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields)}


def _field(words: str) -> dict[str, Any]:
    return {"description": words}


def _texts(words: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": words}


def _list(words: str, **fields: str) -> dict[str, Any]:
    return {"type": "array", "items": _within("", **fields), "description": words}


def _within(words: str, **fields: str) -> dict[str, Any]:
    return {**_record({name: _field(words) for name, words in fields.items()}), "description": words}


_ENGLISH_STORIES = (
    _Story(
        one="My uncle Bill worked for years on the Aurora, a ship built in 1962.",
        several=(
            "My uncle Bill worked for years on the Aurora, a ship built in 1962, and later on the Petrel, built in"
            " 1975."
        ),
        fields={"name": _field("The ship's name"), "year": _field("Year it was built")},
        records=({"name": "Aurora", "year": 1962}, {"name": "Petrel", "year": 1975}),
        texts=_Part(
            " Its flag is green, white and red.", "flag", _texts("The colors of its flag"), ["green", "white", "red"]
        ),
        record=_Part(
            " Its captain was Lena Ruud, on board since 1971.",
            "captain",
            _within("Who the captain was", name="The captain's name", since="First year on board"),
            {"name": "Lena Ruud", "since": 1971},
        ),
        list_of_records=_Part(
            " It sailed to Genoa on Mondays and to Malta on Fridays.",
            "trips",
            _list("Where it sailed", port="Which port", day="Day of the week"),
            [{"port": "Genoa", "day": "Mondays"}, {"port": "Malta", "day": "Fridays"}],
        ),
    ),
    _Story(
        one="Since April Carla Nunez works full time in sales. Her boss is Mr. Lee.",
        several=(
            "Since April Carla Nunez works full time in sales, Ahmed Said part time in the kitchen and Ines Roy full"
            " time in repairs. Their boss is Mr. Lee."
        ),
        fields={
            "name": _field("The employee's name"),
            "department": _field("Where the employee works"),
            "full_time": _field("Whether the work is full time"),
        },
        records=(
            {"name": "Carla Nunez", "department": "sales", "full_time": True},
            {"name": "Ahmed Said", "department": "kitchen", "full_time": False},
            {"name": "Ines Roy", "department": "repairs", "full_time": True},
        ),
        texts=_Part(" On her desk stand a lamp and a radio.", "desk", _texts("What stands on it"), ["lamp", "radio"]),
        record=_Part(
            " Her office is room 15 on the second floor.",
            "office",
            _within("Where her office is", floor="Which floor", room="Number of the room"),
            {"floor": "second", "room": 15},
        ),
        list_of_records=_Part(
            " She sold 4 vans in May, 7 in June and 5 in July.",
            "sales",
            _list("What she sold", month="Which month", vans="How many vans"),
            [{"month": "May", "vans": 4}, {"month": "June", "vans": 7}, {"month": "July", "vans": 5}],
        ),
    ),
)

_CHINESE_STORIES = (
    _Story(
        one="我叔叔在晨光号上工作了很多年，这艘船是1962年造的。",
        several="我叔叔先在晨光号上工作，那艘船是1962年造的，后来去了1975年造的海燕号。",
        fields={"船名": _field("船的名字"), "年份": _field("造船的年份")},
        records=({"船名": "晨光号", "年份": 1962}, {"船名": "海燕号", "年份": 1975}),
        texts=_Part("船旗上有绿色、蓝色和红色。", "船旗", _texts("船旗上的颜色"), ["绿色", "蓝色", "红色"]),
        record=_Part(
            "船长姚兰是1971年上船的。",
            "船长",
            _within("谁是船长", 姓名="船长的姓名", 年份="哪一年上船"),
            {"姓名": "姚兰", "年份": 1971},
        ),
        list_of_records=_Part(
            "它星期一开往天津，星期五开往大连。",
            "航线",
            _list("船开往哪里", 港口="哪个港口", 日子="星期几"),
            [{"港口": "天津", "日子": "星期一"}, {"港口": "大连", "日子": "星期五"}],
        ),
    ),
    _Story(
        one="刘敏从四月起在销售部全职工作，她的上司是陈先生。",
        several="刘敏在销售部全职工作，马超在厨房兼职，罗英在维修部全职工作。他们的上司是陈先生。",
        fields={"姓名": _field("员工的姓名"), "部门": _field("员工所在的部门"), "全职": _field("是否全职")},
        records=(
            {"姓名": "刘敏", "部门": "销售部", "全职": True},
            {"姓名": "马超", "部门": "厨房", "全职": False},
            {"姓名": "罗英", "部门": "维修部", "全职": True},
        ),
        texts=_Part("她的桌上有台灯和收音机。", "桌上", _texts("桌上有什么"), ["台灯", "收音机"]),
        record=_Part(
            "她的办公室在三楼，房间号是15。",
            "办公室",
            _within("办公室在哪里", 楼层="哪一层", 房间="房间号"),
            {"楼层": "三楼", "房间": 15},
        ),
        list_of_records=_Part(
            "她五月卖了4辆车，六月卖了7辆，七月卖了5辆。",
            "销售",
            _list("卖了多少车", 月份="哪个月", 数量="多少辆"),
            [{"月份": "五月", "数量": 4}, {"月份": "六月", "数量": 7}, {"月份": "七月", "数量": 5}],
        ),
    ),
)
