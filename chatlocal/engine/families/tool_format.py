"""Which format of tool calls a chat template writes, by the marks that only that format has.

The names are those of chatlocal's tool-call formats; the marks are those of the models' published templates.
"""

from __future__ import annotations

from chatlocal.engine.families.sandbox import literal_text

# All of a line must be in the template. The first line that fits decides: later formats have marks of earlier ones.
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("glm4.5", ("<arg_key>", "<arg_value>")),
    ("hermes", ("<tool_call>",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("deepseek_r1", ("<｜tool▁calls▁begin｜>", "```json", "</think>")),
    ("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    ("deepseek_v3.1", ("<｜tool▁calls▁begin｜>",)),
    ("llama3", ("<|start_header_id|>", '"parameters"')),
    ("glm4", ("<|observation|>",)),
)


def tool_format(template: str) -> str | None:
    """The name of the format that a chat template writes tool calls in, None when it is none that is known."""
    literals = literal_text(template)
    return next((name for name, marks in _MARKS if all(mark in literals for mark in marks)), None)
