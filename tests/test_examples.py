"""The examples on the embedded model, each in a process of its own, as a newcomer runs them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _model_is_there(embedded_folder: Path) -> None:
    """Fetched once, by the tests' own process."""


def shown_by(example: str, *arguments: str) -> str:
    """What an example prints. It must not warn, fail or reach for the network."""
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "\x1b" not in run.stdout  # what is written to a file is plain
    return run.stdout


def tokens_written(shown: str) -> list[int]:
    return [int(count) for count in re.findall(r"\b(\d+) written in \d", shown)]


def test_the_dog_example_prints_dogs_and_their_speed() -> None:
    shown = shown_by("dog.py")
    growing = [ast.literal_eval(line) for line in re.findall(r"^  (\{.*\})$", shown, re.MULTILINE)]
    assert len(growing) > 2
    assert sorted(growing, key=lambda record: len(str(record))) == growing
    dogs = re.findall(r"^  name='(.+)' color='(.+)'$", shown, re.MULTILINE)
    assert len(dogs) == 2  # of our chain and of the classic one
    assert growing[-1] == dict(zip(("name", "color"), dogs[0], strict=True))
    assert len(tokens_written(shown)) == 2
    assert all(count > 4 for count in tokens_written(shown))


def test_the_rag_example_finds_the_right_document_for_each_question() -> None:
    shown = shown_by("rag.py")
    questions = re.findall(r"^Question +(.+)$", shown, re.MULTILINE)
    first = re.findall(r"^Sources +(\S+) \((\d\.\d\d)\)", shown, re.MULTILINE)
    assert [name for name, _ in first] == ["ferry.md", "bakery.md", "museum.md", "clinic_zh.md"]
    assert all(float(score) > 0.3 for _, score in first)
    assert len(questions) == 4
    ferry, bakery, museum = re.findall(r"^Answer +(.+)$", shown, re.MULTILINE)
    assert "7:40" in ferry
    assert "Wednesday" in bakery
    assert "piano" in museum
    assert "周明华" in shown
    assert len(tokens_written(shown)) == 3
    assert all(count > 4 for count in tokens_written(shown))


def test_the_rag_example_takes_a_question() -> None:
    shown = shown_by("rag.py", "--question", "How tall is the lighthouse?")
    assert re.findall(r"^Question +(.+)$", shown, re.MULTILINE) == ["How tall is the lighthouse?"]
    assert re.search(r"^Sources +lighthouse\.md", shown, re.MULTILINE)
    assert re.search(r"^Answer +.*38", shown, re.MULTILINE)


def test_the_langchain_quickstart() -> None:
    shown = sections(shown_by("quickstart_langchain.py"))
    assert list(shown) == ["invoke", "stream", "batch", "with_structured_output", "async"]
    assert "Paris" in shown["invoke"][0]
    assert "'output_tokens'" in shown["invoke"][-1]
    assert any(shown["stream"])
    assert [city in line for city, line in zip(("Rome", "Tokyo", "Cairo"), shown["batch"], strict=True)] == [True] * 3
    assert re.fullmatch(r"name='.*' age=-?\d+ city='.*'", shown["with_structured_output"][0])
    assert "Lisbon" in shown["async"][-1]


def test_the_llama_index_quickstart() -> None:
    shown = sections(shown_by("quickstart_llama_index.py"))
    assert list(shown) == ["complete", "chat", "stream_chat", "structured_predict", "async"]
    assert "Paris" in shown["complete"][0]
    assert "Lisbon" in shown["chat"][0]
    assert "'completion_tokens'" in shown["chat"][-1]
    assert any(shown["stream_chat"])
    assert re.fullmatch(r"name='.*' age=-?\d+ city='.*'", shown["structured_predict"][0])
    assert len(shown["async"]) >= 2


def test_the_tools_example_looks_up_the_weather() -> None:
    shown = shown_by("tools.py")
    assert re.findall(r"^Question  (.+)$", shown, re.MULTILINE) == ["What is the weather like in Hangzhou?"]
    call, result = re.findall(r"^Call      (.+)\nResult    (.+)$", shown, re.MULTILINE)[0]
    assert call == 'get_weather {"city": "Hangzhou"}'
    assert result == "light rain, 21 degrees"
    assert re.search(r"^Answer    \S", shown, re.MULTILINE)
    assert shown.index("Call") < shown.index("Result") < shown.index("Answer")


def test_the_translation_example_gives_a_record() -> None:
    shown = sections(shown_by("translation.py"))
    assert "translate_result: { // 任意文本的翻译结果。" in shown["Prompt"]
    assert " chinese: string // 中文翻译结果" in shown["Prompt"]
    raw, data, errors = (line.split(maxsplit=1)[1] for line in shown["Result"])
    assert json.loads(raw.removeprefix("<json>").removesuffix("</json>")) == ast.literal_eval(data)
    assert re.search(r"[\u4e00-\u9fff]", data)
    assert errors == "[]"


def test_the_reviews_example_gives_records_under_the_grammar() -> None:
    shown = sections(shown_by("reviews.py").partition("\n\n")[2])
    assert list(shown) == ["asked", "held", "with"]
    assert shown["asked"]  # records or what was wrong, and never nothing
    for held in (shown["held"], shown["with"]):
        assert held
        assert [line for line in held if not re.search(r"  (positive|negative|neutral|-)  ", line)] == []


@pytest.fixture(scope="module")
def character(embedded_folder: Path) -> str:
    return shown_by("character.py")


def test_the_character_example_calls_the_model_for_choices_alone(character: str) -> None:
    assert all(len(line) <= 100 for line in character.splitlines())
    answer = r"^\S.*, forced text (on|off)\n((?:  .+\n)+?)  Character\((.+)\)\n  (.+)$"
    answers = re.findall(answer, character, re.MULTILINE)
    assert [switch for switch, *_ in answers] == ["off", "on"] * 2  # under the regex, and under the schema
    calls_of: dict[str, list[int]] = {"off": [], "on": []}
    for switch, ids, record, counted in answers:
        name, age = re.fullmatch(r"name='([A-Z][a-z]{1,9})', age=([1-9][0-9]?)", record).groups()
        marked = re.findall(r"\[(\S+)\](?!\S)|(\S+)", ids)
        spelled = "".join(chosen or alone for chosen, alone in marked).replace("·", " ")
        assert json.loads(spelled) == {"name": name, "age": int(age)}
        chosen = [id for id, _ in marked if id]
        count, alone, calls = map(int, re.findall(r"\d+", counted))
        assert (count, count - alone) == (len(marked), len(chosen))
        # the pass over the prompt gives the first id that is chosen, each call another one
        assert 1 + calls == (count if switch == "off" else len(chosen))
        calls_of[switch].append(calls)
    assert all(on < off / 2 for off, on in zip(calls_of["off"], calls_of["on"], strict=True))


def test_the_character_example_counts_what_its_automaton_has(character: str) -> None:
    """Against counts by hand, in the minimal automaton of the pattern.

    Its states stand behind 0 to 10 bytes of `{"name": "`, behind the capital, behind 1 to 9 letters more, behind each
    of the 10 bytes of `", "age": `, behind one digit, two, and the brace. There is a choice before the capital, before
    a small letter (26 of them, a quote too from the second on), and before the digits (9, then 10 or the brace).
    """
    (found,) = re.findall(r"^(\d+) states, (\d+) transitions; (\d+) states", character, re.MULTILINE)
    assert int(found[0]) == 11 + 1 + 9 + 10 + 3
    assert int(found[1]) == 10 + 26 + 26 + 8 * 27 + 10 + 9 + 11 + 1
    assert int(found[2]) == 10 + 1 + 9 + 1
    tokens, forced = (
        (int(states), int(transitions.replace(",", "")))
        for states, transitions in re.findall(r": (\d+) states, ([\d,]+) transitions$", character, re.MULTILINE)
    )
    assert tokens[0] == 34  # each state lies behind a byte that is a token
    assert forced[0] < tokens[0]
    assert forced[1] < tokens[1]
    written = re.findall(r"^  in state +\d+  (\S+)$", character, re.MULTILINE)
    # Tokens of letters alone lead to the quote; those that begin with the quote lead behind it, or behind the comma.
    assert written == ['{"name":·"', ',·"age":·', '",·"age":·', '·"age":·', "}"]


def test_the_documentation_shows_what_the_character_example_prints(character: str) -> None:
    shown = (ROOT / "docs" / "structured_output.md").read_text(encoding="utf-8")
    counted, answers = character.split("\n# Answers")
    assert counted in shown
    assert answers.splitlines()[0] in shown  # the answers themselves depend on how a machine rounds


@pytest.mark.evaluate
def test_the_agent_example_finds_the_right_tool_for_each_question() -> None:
    _, harry, oslo, hamlet = re.split(r"^Question +", shown_by("agent_langchain.py"), flags=re.MULTILINE)
    assert "Call      find_dog {'name': 'Harry'}\nResult    beagle, brown, 4 years\n" in harry
    assert "Call      get_weather {'city': 'Oslo'}\nResult    snow, 1 degree\n" in oslo
    assert "Call" not in hamlet
    for shown in (harry, oslo, hamlet):
        assert re.search(r"^Answer +\S", shown, re.MULTILINE)


@pytest.mark.evaluate
def test_the_llama_index_agent_calls_what_a_question_needs() -> None:
    shown = shown_by("agent_llama_index.py")
    assert re.findall(r"^Call +(.+)$", shown, re.MULTILINE) == [
        "get_weather(city='Oslo') -> snow, 1 degree",
        "population(country='Norway') -> 5.6 million",
    ]
    weather, people, capital = re.findall(r"^Answer +(.+)$", shown, re.MULTILINE)
    assert (weather, people) == ("snow, 1 degree", "5.6 million")
    assert "Paris" in capital


def sections(shown: str) -> dict[str, list[str]]:
    """The lines under each `# heading`, by the heading's first word."""
    found: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if line.startswith("# "):
            found[re.split(r"[ :]", line[2:])[0]] = []
        elif line.strip():
            list(found.values())[-1].append(line)
    return found
