"""The few-shot examples of a node and of all nodes below it, and what they say about the answers that are right."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from chatlocal.extractors.nodes import Node, Object, Selection


def examples_of(node: Node) -> list[tuple[str, Any]]:
    """All examples below a node, its own first, each with the answer as it stands below the node's parent."""
    found: list[tuple[str, Any]] = []
    if isinstance(node, Selection):
        found += [(text, _under(node, option.means)) for option in node.options for text in option.examples]
    found += [(text, _under(node, answer)) for text, answer in getattr(node, "examples", ())]
    if isinstance(node, Selection):
        found += [(text, {}) for text in node.null_examples]
    if isinstance(node, Object):
        found += [(text, _under(node, below)) for child in node.attributes for text, below in examples_of(child)]
    return found


def _under(node: Node, answer: Any) -> dict[str, Any]:
    answer = to_jsonable_python(answer)
    if is_nothing(answer):
        return {}
    several = node.many and not isinstance(answer, list)
    return {node.id: [answer] if several else answer}


def nothing_taught(node: Node) -> bool:
    """Whether the prompt has an example in which there is nothing to extract, and so {} is an answer."""
    examples = [answer for _, answer in getattr(node, "examples", ())]
    if getattr(node, "null_examples", ()) or any(is_nothing(answer) for answer in examples):
        return True
    return isinstance(node, Object) and any(nothing_taught(attribute) for attribute in node.attributes)


def is_nothing(answer: Any) -> bool:
    """An example's answer that says that there is nothing; False and 0 are something."""
    return answer is None or answer == "" or (isinstance(answer, (list, tuple, dict)) and not answer)


def records_in(answers: list[Any]) -> list[dict[str, Any]]:
    """The records in the data of examples, whether each is one or a list."""
    listed = [record for answer in answers for record in (answer if isinstance(answer, list) else [answer])]
    return [record for record in listed if isinstance(record, dict)]


def records_of(node: Object) -> list[dict[str, Any]]:
    """The records in all examples that a prompt shows of an Object."""
    return records_in([answer[node.id] for _, answer in examples_of(node) if answer])


def may_be_absent(node: Node, records: list[dict[str, Any]]) -> bool:
    """Whether an attribute is left out of one of the records that the prompt shows."""
    return not node.required and any(node.id not in record for record in records)


def below(node: Node, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records under an attribute."""
    return records_in([record[node.id] for record in records if node.id in record])
