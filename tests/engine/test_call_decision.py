"""Whether a tool should be called, by scores that a script gives and by those of the embedded model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from chatlocal.engine import families
from chatlocal.engine.call_decision import best_tool, call_scores, wanted_tools
from chatlocal.engine.messages import ChatMessage, Tool, ToolCall
from tests.tiny import tiny_tokenizer

if TYPE_CHECKING:
    from chatlocal.engine.engine import Engine

TOKENIZER = tiny_tokenizer()
WEATHER = Tool("get_weather", "Get weather at a location.", {"type": "object", "properties": {"location": {}}})
TIME = Tool("now")
USER = ChatMessage("user", "What is the weather in Rome, and what time is it?")
CALL = ChatMessage("assistant", None, (ToolCall("a", "get_weather", "{}"),))
RESULT = ChatMessage("tool", "sunny", tool_call_id="a")


class ScriptedScore:
    """Scores by what stands in the prompt: nats a token by a part of its text, for refusals all in all."""

    def __init__(self, by_part: dict[str, float], refusal: float = -1.0) -> None:
        self.by_part = by_part
        self.refusal = refusal
        self.prompts: list[str] = []

    def __call__(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        text = TOKENIZER.decode(list(prompt))
        self.prompts.append(text)
        if "says:" not in text:
            return [self.refusal for _ in continuations]
        value = next((value for part, value in self.by_part.items() if part in text), -5.0)
        return [value * len(ids) for ids in continuations]


def decided(messages: Sequence[ChatMessage], tools: Sequence[Tool], score: Callable[..., list[float]]) -> list[str]:
    family = families.get("chatml")
    found = wanted_tools(messages, tools, family=family, tokenizer=TOKENIZER, score=score, threshold=0.0)
    return [tool.name for tool in found]


def test_the_tool_that_makes_the_words_likeliest_is_wanted() -> None:
    assert decided([USER], [TIME, WEATHER], ScriptedScore({"get_weather": -2.0, "now": -3.0})) == ["get_weather"]
    assert decided([USER], [TIME, WEATHER], ScriptedScore({"get_weather": -3.0, "now": -2.0})) == ["now"]


def test_no_tool_is_wanted_that_makes_the_words_no_likelier() -> None:
    assert decided([USER], [TIME, WEATHER], ScriptedScore({"get_weather": -5.0, "now": -5.5})) == []


def test_no_tool_is_wanted_where_the_model_would_never_refuse() -> None:
    assert decided([USER], [WEATHER], ScriptedScore({"get_weather": -3.0}, refusal=-60.0)) == []


def test_what_was_answered_is_not_called_again_until_the_user_speaks() -> None:
    score = ScriptedScore({"get_weather": -2.0, "now": -3.0})
    assert decided([USER, CALL, RESULT], [TIME, WEATHER], score) == ["now"]
    assert decided([USER, CALL, RESULT], [WEATHER], score) == []
    assert decided([USER, CALL], [WEATHER], score) == ["get_weather"]
    assert decided([USER, CALL, RESULT, USER], [WEATHER], score) == ["get_weather"]
    named = ChatMessage("tool", "sunny", name="get_weather")
    assert decided([USER, CALL, named], [WEATHER], score) == []


@pytest.mark.parametrize("messages", [[ChatMessage("system", "Be brief.")], [ChatMessage("user", "")]])
def test_without_words_of_the_user_nothing_is_asked(messages: list[ChatMessage]) -> None:
    score = ScriptedScore({})
    assert decided(messages, [WEATHER], score) == []
    assert score.prompts == []


def test_without_tools_nothing_is_asked() -> None:
    score = ScriptedScore({})
    assert decided([USER], [], score) == []
    assert score.prompts == []


def test_a_long_message_costs_no_more_than_its_beginning_and_end() -> None:
    lengths: list[int] = []

    def score(prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        lengths.extend(len(prompt) + len(ids) for ids in continuations)
        return [-1.0 for _ in continuations]

    decided([ChatMessage("user", "Weather? " + "sun and rain " * 2_000)], [WEATHER], score)
    assert max(lengths) < 1_000


def test_one_prompt_for_each_tool_and_two_more() -> None:
    score = ScriptedScore({})
    decided([USER], [TIME, WEATHER], score)
    assert len(score.prompts) == 4
    assert sum("now" in prompt for prompt in score.prompts) == 1


MAGIC = Tool(
    "magic_function",
    "Applies a magic function to an input.",
    {"type": "object", "properties": {"input": {"type": "integer"}}, "required": ["input"]},
)
CHINESE = Tool("get_weather", "查询城市的实时天气", {"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.mark.parametrize(
    ("text", "tool", "wanted"),
    [
        ("What is the value of magic_function(3)? Use the tool.", MAGIC, True),
        ("What is the weather in San Francisco, CA?", WEATHER, True),
        ("北京今天天气怎么样？", CHINESE, True),
        ("Hello!", MAGIC, False),
        ("Hello!", WEATHER, False),
        ("Hello!", TIME, False),
        ("你好！", CHINESE, False),
        ("Write a short poem about the sea.", WEATHER, False),
    ],
)
def test_the_embedded_model(embedded_engine: Engine, text: str, tool: Tool, wanted: bool) -> None:
    (score,) = call_scores(
        text,
        [tool],
        family=embedded_engine._choice.family,
        tokenizer=embedded_engine.tokenizer,
        score=embedded_engine.backend.score,
    )
    assert (score >= 0) is wanted


def test_behind_a_result_another_tool_must_score_more() -> None:
    """At the border itself the first call is made, and none once the other tool has answered."""
    other = Tool("get_hours", "Get opening hours.")

    def scores(fit: float) -> ScriptedScore:
        return ScriptedScore({"get_weather": -9.0, "get_hours": fit})

    # The floor decides here: 0.3 nats a token over what the words have by themselves, -5.0 in the script.
    words = len(TOKENIZER.encode(f" {USER.content}", add_special_tokens=False))
    barely = -5.0 + (0.3 + 0.05) * (words + 3) / words
    clearly = -5.0 + (0.3 + 0.5) * (words + 3) / words
    assert decided([USER], [WEATHER, other], scores(barely)) == ["get_hours"]
    assert decided([USER, CALL, RESULT], [WEATHER, other], scores(barely)) == []
    assert decided([USER, CALL, RESULT], [WEATHER, other], scores(clearly)) == ["get_hours"]


def test_of_the_documentation_of_a_function_the_first_paragraph_counts() -> None:
    score = ScriptedScore({"get_weather": -2.0})
    documented = Tool("get_weather", "Get weather\n    at a location.\n\n    Args:\n        location: where")
    assert decided([USER], [documented], score) == ["get_weather"]
    assert any("get_weather (Get weather at a location)." in prompt for prompt in score.prompts)
    assert not any("Args" in prompt for prompt in score.prompts)


def test_of_several_tools_the_one_that_is_meant_is_called_where_a_call_is_demanded() -> None:
    score = ScriptedScore({"get_weather": -6.0, "now": -5.5})
    known = {"family": families.get("chatml"), "tokenizer": TOKENIZER, "score": score}
    assert best_tool([USER], [WEATHER, TIME], **known) is TIME
    asked = len(score.prompts)
    assert best_tool([USER], [WEATHER], **known) is WEATHER  # nothing to choose from
    assert best_tool([ChatMessage("system", "Act.")], [WEATHER, TIME], **known) is WEATHER  # nor anything to choose by
    assert len(score.prompts) == asked
