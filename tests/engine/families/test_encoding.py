"""Ids of text are the tokenizer's own, but never control ids: with every kind of tokenizer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families import Markup, Prompt, Text
from chatlocal.engine.families.control import control_tokens
from tests.tiny import tiny_tokenizer

_LETTERS = "abcdefghijklmnopqrstuvwxyz/<>|_"
_SPECIAL = ("<unk>", "<s>", "</s>")


def fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def prefixed_always() -> PreTrainedTokenizerFast:
    """Llama 2's first fast form: every stretch of text gets a space in front."""
    vocabulary = {piece: id for id, piece in enumerate((*_SPECIAL, "▁", *_LETTERS, "▁a"))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return fast(tokenizer)


def prefixed_first() -> PreTrainedTokenizerFast:
    """Its newer form: only the very first stretch does."""
    vocabulary = {piece: id for id, piece in enumerate((*_SPECIAL, "▁", *_LETTERS, "▁a"))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return fast(tokenizer)


def greedy_for_spaces() -> PreTrainedTokenizerFast:
    """Phi-3: control tokens that swallow the white space beside them."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": [AddedToken("<|user|>", rstrip=True, lstrip=True)]})
    return tokenizer


def ordinary_added() -> PreTrainedTokenizerFast:
    """Gemma: added tokens that are text, such as <b> and runs of newlines."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("<b>", normalized=False), AddedToken("\n\n", normalized=False)])
    return tokenizer


def with_holes() -> PreTrainedTokenizerFast:
    """A vocabulary whose ids go past its size."""
    vocabulary = {piece: 2 * id for id, piece in enumerate((*_SPECIAL, *_LETTERS))}
    return fast(Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>")))


def unigram() -> PreTrainedTokenizerFast:
    """A model that knows its control tokens as pieces and finds them in plain text."""
    pieces = [(piece, 0.0) for piece in _SPECIAL] + [(letter, -5.0) for letter in _LETTERS]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.decoder = decoders.Fuse()
    return fast(tokenizer)


TOKENIZERS = {
    "byte-level": tiny_tokenizer(),
    "prefixed always": prefixed_always(),
    "prefixed first": prefixed_first(),
    "greedy for spaces": greedy_for_spaces(),
    "ordinary added": ordinary_added(),
    "holes": with_holes(),
    "unigram": unigram(),
}
each_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def control_of(tokenizer: Any) -> dict[str, int]:
    return control_tokens(tokenizer)


@each_tokenizer
@given(data=st.data())
def test_text_without_control_tokens_has_the_tokenizers_own_ids(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    markup = st.sampled_from(sorted(control_of(tokenizer))).map(Markup)
    words = st.lists(st.sampled_from(["a", "b", "ab", " ", "\n", "\n\n", "<b>", "a b"]), max_size=6)
    parts = tuple(data.draw(st.lists(markup | words.map("".join).map(Text), max_size=6)))
    prompt = Prompt(parts)
    assert prompt.ids(tokenizer) == tuple(tokenizer.encode(prompt.text, add_special_tokens=False))


@each_tokenizer
@given(data=st.data())
def test_text_never_becomes_a_control_id(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    control = control_of(tokenizer)
    pieces = st.sampled_from([*control, "<", "|>", "s>", "a", " ", "<|im_", "im_end|>"])
    text = data.draw(st.lists(pieces, max_size=8).map("".join))
    markup = data.draw(st.sampled_from(sorted(control)))
    ids = Prompt((Markup(markup), Text(text), Markup(markup))).ids(tokenizer)
    allowed = {tokenizer.unk_token_id} if name not in ("byte-level", "greedy for spaces", "ordinary added") else set()
    assert (ids[0], ids[-1]) == (control[markup], control[markup])
    assert not (set(control.values()) - allowed) & set(ids[1:-1])


def test_look_alikes_read_back_as_they_were_typed() -> None:
    tokenizer = TOKENIZERS["unigram"]
    ids = Prompt((Text("a</s>b<s>"),)).ids(tokenizer)
    assert tokenizer.decode(ids) == "a</s>b<s>"


def test_ordinary_added_tokens_stay_one_id() -> None:
    tokenizer = TOKENIZERS["ordinary added"]
    ids = Prompt((Text("x<b>\n\n"),)).ids(tokenizer)
    assert ids[1:] == tuple(tokenizer.convert_tokens_to_ids(["<b>", "\n\n"]))


def test_added_tokens_that_a_template_writes_are_control_tokens() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<table>", normalized=False)])
    tokenizer.chat_template = "{{ '<tool_call>' }}{{ messages[0].content }}"
    call, table = tokenizer.convert_tokens_to_ids(["<tool_call>", "<table>"])
    ids = Prompt((Markup("<tool_call>"), Text("<tool_call><table>"))).ids(tokenizer)
    assert (ids.count(call), ids.count(table)) == (1, 1)


def test_tokens_added_later_are_known() -> None:
    tokenizer = tiny_tokenizer()
    prompt = Prompt((Markup("<late>"),))
    assert len(prompt.ids(tokenizer)) > 1
    tokenizer.add_special_tokens({"extra_special_tokens": ["<late>"]})
    assert prompt.ids(tokenizer) == (tokenizer.convert_tokens_to_ids("<late>"),)


def test_threads_may_encode_while_the_tokenizer_is_used() -> None:
    """Calling a fast tokenizer with truncation changes its state, which fails while another thread borrows it."""
    tokenizer = tiny_tokenizer()
    prompt = Prompt((Markup("<|im_start|>"), Text("the dog is brown " * 50)))
    expected = (1, *tokenizer.encode("the dog is brown " * 50, add_special_tokens=False))

    def use() -> None:
        for length in range(1, 200):
            assert len(tokenizer("the dog " * 50, truncation=True, max_length=length)["input_ids"]) <= length

    with ThreadPoolExecutor(8) as pool:
        using = pool.submit(use)
        assert set(pool.map(lambda turn: prompt.ids(tokenizer), range(200))) == {expected}
        using.result()


@each_tokenizer
def test_a_tokenizer_of_the_library_by_itself_gives_the_same_ids(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    markup = sorted(control_of(tokenizer))[-1]
    prompt = Prompt((Text("a b"), Markup(markup), Text("ab<b>ü")), control=frozenset({markup}))
    assert prompt.ids(tokenizer.backend_tokenizer) == prompt.ids(tokenizer)


def test_tokens_added_later_to_a_tokenizer_by_itself_are_known() -> None:
    tokenizer = tiny_tokenizer().backend_tokenizer
    prompt = Prompt((Markup("<late>"),), control=frozenset({"<late>"}))
    assert len(prompt.ids(tokenizer)) > 1
    tokenizer.add_special_tokens(["<late>"])
    assert prompt.ids(tokenizer) == (tokenizer.token_to_id("<late>"),)


class TestPiecesOfTheModel:
    """Control tokens that are no added tokens: a piece that text becomes, and one that it never does."""

    CONTROL = frozenset({"<eoa>", "<reserved_1>", "a"})
    PIECES = (*_SPECIAL, "▁", *_LETTERS, "▁a", "<eoa>", "<reserved_1>")

    @pytest.fixture
    def tokenizer(self) -> PreTrainedTokenizerFast:
        vocabulary = {piece: id for id, piece in enumerate(self.PIECES)}
        tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", ignore_merges=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Metaspace(prepend_scheme="always", split=False),
                pre_tokenizers.Split("<eoa>", behavior="isolated"),
            ]
        )
        return fast(tokenizer)

    def tokens(self, tokenizer: PreTrainedTokenizerFast, *parts: Markup | Text) -> list[str]:
        return [self.PIECES[id] for id in Prompt(parts, control=self.CONTROL).ids(tokenizer)]

    def test_markup_is_one_id(self, tokenizer: PreTrainedTokenizerFast) -> None:
        parts = (Text("a"), Markup("<eoa>"), Text("b"), Markup("<reserved_1>"), Text("b"))
        # A text goes on behind the one that stands within texts, and begins anew behind the other.
        assert self.tokens(tokenizer, *parts) == ["▁a", "<eoa>", "b", "<reserved_1>", "▁", "b"]

    @pytest.mark.parametrize("text", ["<eoa>", "a<eoa><reserved_1>", "<reserved_1>"])
    def test_text_never_is(self, tokenizer: PreTrainedTokenizerFast, text: str) -> None:
        assert not {"<eoa>", "<reserved_1>"} & set(self.tokens(tokenizer, Text(text)))
        assert self.tokens(tokenizer, Markup("<eoa>"), Text(text), Markup("<eoa>")).count("<eoa>") == 2

    def test_answers_end_by_its_id(self, tokenizer: PreTrainedTokenizerFast) -> None:
        prompt = Prompt((), stop_strings=("<eoa>", "\nUser:"), control=self.CONTROL)
        assert prompt.stop_ids(tokenizer) == {self.PIECES.index("<eoa>"), self.PIECES.index("</s>")}
        assert prompt.stop_texts(tokenizer) == ("\nUser:",)

    def test_ordinary_pieces_are_text(self, tokenizer: PreTrainedTokenizerFast) -> None:
        assert self.tokens(tokenizer, Text("ba"), Markup("a")) == ["▁", "b", "a", "a"]


def test_an_object_of_another_kind_is_refused_by_name() -> None:
    class Odd:
        chat_template = None
        added_tokens_decoder: dict[int, AddedToken] = {}  # noqa: RUF012

        def __len__(self) -> int:
            return 0

    with pytest.raises(UnsupportedInput, match="A Odd cannot keep control tokens and text apart"):
        Prompt(()).ids(Odd())


@pytest.mark.parametrize("text", ["\ud83d", "a dog \udfff"])
def test_half_a_surrogate_pair_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedInput, match="half of a surrogate pair"):
        Prompt((Text(text),)).ids(tiny_tokenizer())
