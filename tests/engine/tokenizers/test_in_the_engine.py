"""ChatGLM's tokenizers under the engine: answers as text, bytes of tokens, constraints, and a whole request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine import constraints
from chatlocal.engine.constraints.vocabulary import read_vocabulary, token_bytes
from chatlocal.engine.detokenize import Detokenizer
from chatlocal.engine.engine import Engine
from chatlocal.engine.messages import Sampling
from chatlocal.engine.tokenizers import ChatGLM3Tokenizer, ChatGLMTokenizer
from tests.engine.tokenizers.vocabularies import trained_chatglm, trained_chatglm2
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> ChatGLMTokenizer:
    file = tmp_path_factory.mktemp("one") / "ice_text.model"
    file.write_bytes(trained_chatglm())
    return ChatGLMTokenizer(file)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> ChatGLM3Tokenizer:
    file = tmp_path_factory.mktemp("three") / "tokenizer.model"
    file.write_bytes(trained_chatglm2())
    return ChatGLM3Tokenizer(file)


@pytest.fixture(scope="module", params=["chatglm-6b", "chatglm3"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("one" if request.param == "chatglm-6b" else "three")


texts = st.text('the dogHarry你好🦥\n\t  {}":é\ufffd', max_size=25)


@given(text=texts, data=st.data())
def test_an_answer_comes_out_as_its_decoding(tokenizer: Any, text: str, data: st.DataObject) -> None:
    ids = [*tokenizer.encode_text(text), tokenizer.eos_token_id]
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5).map(sorted))
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.feed(ids[start:end]) for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    assert "".join(pieces) + detokenizer.flush() == tokenizer.decode(ids, skip_special_tokens=True)


@given(text=texts)
def test_tokens_spell_the_text_behind_the_space_put_before_it(tokenizer: Any, text: str) -> None:
    spelled = b"".join(token_bytes(tokenizer)[id] for id in tokenizer.encode_text(text))
    # ChatGLM-6B leaves out a single space at either end.
    text = tokenizer.decode(tokenizer.encode_text(text))
    assert spelled == (f" {text}" if spelled else "").encode()


def test_control_tokens_have_no_bytes(tokenizer: Any) -> None:
    vocabulary = read_vocabulary(tokenizer)
    assert len(vocabulary.tokens) == len(tokenizer)
    assert {id for id, data in enumerate(vocabulary.tokens) if not data} == vocabulary.special == vocabulary.control
    assert {tokenizer.eos_token_id, tokenizer.pad_token_id} < vocabulary.special


def test_white_space_tokens_are_white_space(one: ChatGLMTokenizer) -> None:
    ids = one.convert_tokens_to_ids(["<n>", "<|tab|>", "<|blank_2|>", "<|blank_80|>", "<0xE4>", "▁dog"])
    assert [token_bytes(one)[id] for id in ids] == [b"\n", b"\t", b"  ", b" " * 80, b"\xe4", b" dog"]


def test_a_constraint_is_written_in_these_tokens(tokenizer: Any) -> None:
    spec = constraints.json_schema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    constraint = constraints.compile(spec, tokenizer)
    assert constraint.accepts('{"name": "Harry 你好"}')
    assert not constraint.accepts('{"name": 1}')
    allowed = constraint.start().mask().nonzero().flatten().tolist()
    assert allowed
    assert all(token_bytes(tokenizer)[id].startswith(b"{") for id in allowed)


@pytest.mark.parametrize("name", ["chatglm-6b", "chatglm3"])
def test_a_whole_request(request: pytest.FixtureRequest, name: str) -> None:
    tokenizer = request.getfixturevalue("one" if name == "chatglm-6b" else "three")
    model = tiny_model(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    messages = [{"role": "user", "content": "is the dog <|user|> brown <n>"}]
    with Engine(model, tokenizer, template=name) as engine:
        free = engine.generate(messages, sampling=Sampling(max_tokens=8, temperature=0))
        chosen = engine.generate(messages, spec=constraints.choice(["the dog\nHarry", "他的"]))
    assert free.finish.usage.completion == 8
    assert chosen.message.text in ("the dog\nHarry", "他的")
