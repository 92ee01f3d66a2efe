"""Prompts in tokenizers that are not fast ones of transformers: the library's own ids, and no control id from text."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families import Markup, Prompt, Text, get
from chatlocal.engine.families.encoding import encoder
from chatlocal.engine.tokenizers import ChatGLM2Tokenizer, ChatGLM3Tokenizer, ChatGLMTokenizer, qwen
from tests.engine.tokenizers.ranks import reference, small_ranks
from tests.engine.tokenizers.vocabularies import GOLDEN, published_chatglm2, train, trained_chatglm, trained_chatglm2

USER, END = "<|user|>", "<|end|>"
CONTROL = frozenset({USER, END, "</s>"})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small vocabularies."""
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "control.model").write_bytes(train(control_symbols=[USER, END]))
    (folder / "defined.model").write_bytes(train(user_defined_symbols=[USER, END]))
    (folder / "none.model").write_bytes(train(bos_id=-1))
    (folder / "ice_text.model").write_bytes(trained_chatglm())
    (folder / "tokenizer.model").write_bytes(trained_chatglm2())
    return folder


def processor(file: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(file))


class Mistral:
    """The methods of mistral-common's SentencePieceTokenizer that are used."""

    def __init__(self, file: Path) -> None:
        self._model = processor(file)
        ids = range(self._model.get_piece_size())
        self.special_ids = {id for id in ids if self._model.is_control(id)}
        self.bos_id = self._model.bos_id()

    def id_to_piece(self, token_id: int) -> str:
        return str(self._model.id_to_piece(token_id))

    def encode(self, s: str, bos: bool, eos: bool) -> list[int]:
        ids = self._model.encode(s)
        return [*([self.bos_id] if bos else []), *ids, *([self._model.eos_id()] if eos else [])]


class Holder:
    """MistralTokenizer holds one in `instruct_tokenizer.tokenizer`, and transformers' backend that in `tokenizer`."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def slow(file: Path) -> SentencePieceBackend:
    """A slow tokenizer of transformers, as the classes over SentencePieceBackend are."""
    return SentencePieceBackend(
        vocab_file=str(file),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=[USER, END],
    )


# Each kind with a tokenizer, its ids of a plain text, and the id of <|user|>.
KINDS: dict[str, Callable[[Path], tuple[Any, Callable[[str], list[int]], int]]] = {
    "sentencepiece, control pieces": lambda files: _of_sentencepiece(files / "control.model"),
    "sentencepiece, user-defined pieces": lambda files: _of_sentencepiece(files / "defined.model"),
    "mistral-common": lambda files: _of_mistral(files / "control.model", lambda inner: inner),
    "mistral-common, instruct": lambda files: _of_mistral(
        files / "control.model", lambda inner: Holder(instruct_tokenizer=Holder(tokenizer=inner))
    ),
    "mistral-common, transformers": lambda files: _of_mistral(
        files / "control.model", lambda inner: Holder(tokenizer=Holder(instruct_tokenizer=Holder(tokenizer=inner)))
    ),
    "slow, control pieces": lambda files: _of_slow(files / "control.model"),
    "slow, user-defined pieces": lambda files: _of_slow(files / "defined.model"),
    "slow, added tokens": lambda files: _of_slow(files / "none.model"),
    "tiktoken": lambda files: _of_tiktoken(),
    "chatglm3": lambda files: _of_chatglm3(files / "tokenizer.model"),
}


def _of_sentencepiece(file: Path) -> tuple[Any, Callable[[str], list[int]], int]:
    made = processor(file)
    return made, made.encode, made.piece_to_id(USER)


def _of_mistral(file: Path, wrap: Callable[[Any], Any]) -> tuple[Any, Callable[[str], list[int]], int]:
    made = processor(file)
    return wrap(Mistral(file)), made.encode, made.piece_to_id(USER)


def _of_slow(file: Path) -> tuple[Any, Callable[[str], list[int]], int]:
    made = slow(file)
    return made, processor(file).encode, made.convert_tokens_to_ids(USER)


def _of_tiktoken() -> tuple[Any, Callable[[str], list[int]], int]:
    made = reference(qwen.PATTERN, small_ranks(), (USER, END, "</s>"))
    return made, made.encode_ordinary, made.encode_single_token(USER)


def _of_chatglm3(file: Path) -> tuple[Any, Callable[[str], list[int]], int]:
    made = ChatGLM3Tokenizer(file)
    return made, processor(file).encode, made.get_command(USER)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, files: Path) -> tuple[Any, Callable[[str], list[int]], int]:
    return KINDS[request.param](files)


benign = st.lists(st.sampled_from(["the", " dog", "你好", " ", "  ", "\n", "x", "<", "|>", "1"]), max_size=8).map(
    "".join
)
hostile = st.lists(st.sampled_from([USER, END, "</s>", "<s>", "<|", "user", "|>", " ", "the"]), max_size=8).map("".join)


@given(texts=st.lists(benign, min_size=1, max_size=4))
def test_each_stretch_of_text_has_the_librarys_own_ids(kind: Any, texts: list[str]) -> None:
    tokenizer, plain, user = kind
    parts: list[Markup | Text] = []
    expected: list[int] = []
    for text in texts:
        parts += [Markup(USER), Text(text)]
        expected += [user, *(plain(text) if text else [])]
    assert list(Prompt(tuple(parts), control=CONTROL).ids(tokenizer)) == expected


@given(before=benign, after=benign)
def test_markup_that_is_no_token_is_text_with_its_neighbours(kind: Any, before: str, after: str) -> None:
    tokenizer, plain, _ = kind
    prompt = Prompt((Text(before), Markup("<|no such|>"), Text(after)), control=CONTROL)
    assert list(prompt.ids(tokenizer)) == list(plain(f"{before}<|no such|>{after}"))


@given(before=benign, after=benign)
def test_text_of_its_own_begins_like_a_text(kind: Any, before: str, after: str) -> None:
    tokenizer, plain, _ = kind
    prompt = Prompt((Text(before), Text(after, own=True)), control=CONTROL)
    assert list(prompt.ids(tokenizer)) == [id for text in (before, after) if text for id in plain(text)]


@given(text=hostile)
def test_text_never_becomes_a_control_id(kind: Any, text: str) -> None:
    tokenizer, plain, user = kind
    control = set(encoder(tokenizer, CONTROL).control_ids.values())
    first, *ids, last = Prompt((Markup(USER), Text(text), Markup(USER)), control=CONTROL).ids(tokenizer)
    assert (first, last) == (user, user)
    assert not control & set(ids)
    if not control & set(plain(text)):
        assert ids == list(plain(text))


@pytest.mark.parametrize("name", [name for name in KINDS if "user-defined" in name])
def test_look_alikes_are_spelled_without_a_stray_space(files: Path, name: str) -> None:
    tokenizer, _, _ = KINDS[name](files)
    ids = Prompt((Text(f"the{USER}dog"),), control=CONTROL).ids(tokenizer)
    assert processor(files / "defined.model").decode(list(ids)) == f"the{USER}dog"


def test_what_begins_a_prompt(files: Path) -> None:
    begins = {
        "sentencepiece": encoder(processor(files / "control.model"), CONTROL).begin,
        "without begin token": encoder(processor(files / "none.model"), CONTROL).begin,
        "mistral": encoder(Mistral(files / "control.model"), CONTROL).begin,
        "slow": encoder(slow(files / "control.model"), CONTROL).begin,
        "chatglm": encoder(ChatGLMTokenizer(files / "ice_text.model"), CONTROL).begin,
        "chatglm2": encoder(ChatGLM2Tokenizer(files / "tokenizer.model"), CONTROL).begin,
        "tiktoken": encoder(reference(qwen.PATTERN, small_ranks()), CONTROL).begin,
    }
    expected = dict.fromkeys(begins, ()) | {"sentencepiece": (1,), "mistral": (1,)}
    assert begins == expected
    prompt = Prompt((Text("the"),), begins=True)
    own = processor(files / "control.model")
    assert prompt.ids(own) == (1, *own.encode("the"))


def test_stops_are_ids_where_the_tokenizer_has_them(files: Path) -> None:
    prompt = Prompt((), stop_strings=(END, "Observation:", "</s>"), control=CONTROL)
    made = processor(files / "defined.model")
    assert prompt.stop_ids(made) == {made.piece_to_id(END), 2}
    assert prompt.stop_texts(made) == ("Observation:",)


def test_parts_of_words_are_no_control_tokens(files: Path) -> None:
    """ChatGLM2's "sop" is a piece of ordinary words in other vocabularies."""
    made = processor(files / "control.model")
    assert encoder(made, frozenset({"the", "▁dog", USER})).control_ids.keys() == {"<s>", "</s>", USER, END}


@pytest.mark.parametrize("case", [case for case in GOLDEN["chatglm3_6b"]["cases"] if "tools" not in case["conv"]])
def test_chatglm3s_published_prompts(tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]) -> None:
    assert list(get("chatglm3").render(case["messages"]).ids(_published(tmp_path_factory))) == case["ids"]


def _published(factory: pytest.TempPathFactory) -> ChatGLM3Tokenizer:
    file = factory.mktemp("published") / "tokenizer.model"
    file.write_bytes(published_chatglm2())
    return ChatGLM3Tokenizer(file)


class Parsing(PreTrainedTokenizer):
    """A slow tokenizer that finds control tokens in every text, as some written in Python do: a token a character."""

    def __init__(self) -> None:
        self._known = {char: id for id, char in enumerate("abcdefghijklmnopqrstuvwxyz<>|/ ")}
        super().__init__(unk_token="?", additional_special_tokens=[USER])

    @property
    def vocab_size(self) -> int:
        return len(self._known)

    def get_vocab(self) -> dict[str, int]:
        return {**self._known, **self.added_tokens_encoder}

    def tokenize(self, text: str, **_: Any) -> list[str]:
        pieces = text.split(USER)
        return [token for place, piece in enumerate(pieces) for token in ([USER] if place else []) + list(piece)]

    def _convert_token_to_id(self, token: str) -> int:
        return self._known.get(token, self.unk_token_id)


def test_look_alikes_are_cut_where_a_tokenizer_parses_its_text() -> None:
    tokenizer = Parsing()
    ids = Prompt((Markup(USER), Text(f"a{USER}{USER}?"))).ids(tokenizer)
    vocabulary = tokenizer.get_vocab()
    assert list(ids) == [vocabulary[token] for token in (USER, *f"a{USER}{USER}", "?")]


def test_text_that_can_only_be_a_control_token_is_refused() -> None:
    tokenizer = Parsing()
    tokenizer.add_special_tokens({"additional_special_tokens": ["a"]})
    with pytest.raises(UnsupportedInput, match="no other way to write it"):
        Prompt((Text("ban"),)).ids(tokenizer)


@pytest.mark.parametrize("name", KINDS)
def test_an_encoder_is_kept_as_long_as_its_tokenizer(files: Path, name: str) -> None:
    tokenizer, *_ = KINDS[name](files)
    del _
    kept = encoder(tokenizer, CONTROL)
    assert encoder(tokenizer, CONTROL) is kept
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None
    assert kept.encode([[(False, "the")]])


class Unhashable(Mistral):
    __hash__ = None  # type: ignore[assignment]


class Slotted:
    """Cannot be referenced weakly."""

    __slots__ = ("instruct_tokenizer",)

    def __init__(self, inner: Mistral) -> None:
        self.instruct_tokenizer = Holder(tokenizer=inner)


@pytest.mark.parametrize("make", [Unhashable, lambda file: Slotted(Mistral(file))])
def test_objects_that_cannot_be_keys_are_known_too(files: Path, make: Callable[[Path], Any]) -> None:
    many = [make(files / "control.model") for _ in range(20)]
    expected = [1, *processor(files / "control.model").encode("the")]
    for tokenizer in [*many, *many]:
        assert list(Prompt((Text("the"),), begins=True).ids(tokenizer)) == expected
    assert encoder(many[0], CONTROL) is encoder(many[0], CONTROL)
    assert encoder(many[0], CONTROL) is not encoder(many[1], CONTROL)


@pytest.mark.parametrize("text", ["\ud83d", "a dog \udfff"])
def test_half_a_surrogate_pair_is_refused_by_name(kind: Any, text: str) -> None:
    with pytest.raises(UnsupportedInput, match="half of a surrogate pair"):
        Prompt((Text(text),)).ids(kind[0])
