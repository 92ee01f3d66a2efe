"""Sentencepiece vocabularies for tests: small trained ones, and ones that hold the published tokens at their ids.

The real vocabularies are under the models' licences. What is published of them, tokens with their ids, is enough to
build a model that cuts the published texts as the real one does: one where every token costs the same, so that the
fewest win.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "chatglm_tokenizer.json").read_text(encoding="utf-8"))
WHITESPACE = ("<n>", "<|tab|>", *(f"<|blank_{size}|>" for size in range(2, 81)))
CONTROL = ("[MASK]", "[gMASK]", "[sMASK]", "<unused_0>", "<sop>", "<eop>", "<ENC>", "<dBLOCK>")
LOWER = "do_lower_case=true (as printed in the article)"
AS_IS = "do_lower_case=false (shipped tokenizer_config.json of the released THUDM/chatglm-6b)"

_SENTENCES = (
    "the dog is called Harry and his coat is brown. 你好 世界 今天 天气 怎么样 我 是 昨天 买 的 苹果 Hello World"
)
NORMAL, UNKNOWN, CONTROL_TYPE, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def train(**options: Any) -> bytes:
    """A small model, the same for the same options; milliseconds."""
    choice = random.Random(0)
    words = _SENTENCES.split()
    corpus = [" ".join(choice.choices(words, k=choice.randint(3, 9))) for _ in range(300)]
    written = io.BytesIO()
    settings: dict[str, Any] = {
        "model_type": "bpe",
        "vocab_size": 500,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "num_threads": 1,
        "minloglevel": 2,
        "sentence_iterator": iter(corpus),
        "model_writer": written,
    }
    sentencepiece.SentencePieceTrainer.train(**{**settings, **options})
    return written.getvalue()


@cache
def trained_chatglm() -> bytes:
    """Like ChatGLM-6B's: NFKC, one space where several stand, white space as pieces."""
    return train(
        user_defined_symbols=list(WHITESPACE),
        control_symbols=list(CONTROL),
        pad_id=3,
        normalization_rule_name="nmt_nfkc",
        remove_extra_whitespaces=True,
    )


@cache
def trained_chatglm2() -> bytes:
    """Like ChatGLM2's: texts as they are."""
    return train(allow_whitespace_only_pieces=True, split_digits=True)


@cache
def published_chatglm() -> bytes:
    """The published tokens of ChatGLM-6B at their ids."""
    facts = GOLDEN["chatglm_6b"]
    known = {entry["id"]: entry for entry in _special_chatglm(facts["special_ids"])}
    for vector in facts["recomputed_vectors"]:
        for result in vector["results"].values():
            for id, piece in zip(result["ids_no_special"], result["pieces"], strict=True):
                known.setdefault(id, {"id": id, "piece": piece, "type": NORMAL})
    for vector in facts["published"]["vectors"]:
        for id, piece in zip(vector["ids"], vector["pieces"] or (), strict=bool(vector["pieces"])):
            known.setdefault(id, {"id": id, "piece": piece, "type": NORMAL})
    # Of two texts only the ids are published. The first has one token besides "▁"; where the second is cut is a guess,
    # and of no matter.
    for id, piece in ((108293, "你是谁"), (85117, "▁你要"), (72675, "干什么")):
        known[id] = {"id": id, "piece": piece, "type": NORMAL}
    decoded = facts["published"]["decode"]
    for id, piece in zip(decoded["ids"], decoded["pieces"], strict=True):
        known.setdefault(id, {"id": id, "piece": piece, "type": NORMAL})
    return _model(known, facts["special_ids"]["vocab_size"], trained_chatglm())


@cache
def published_chatglm2() -> bytes:
    """The published tokens of ChatGLM2 and ChatGLM3 at their ids: both have the same vocabulary."""
    size = GOLDEN["chatglm2_6b"]["sentencepiece_size"]
    known: dict[int, dict[str, Any]] = {
        0: {"piece": "<unk>", "type": UNKNOWN},
        1: {"piece": "<s>", "type": CONTROL_TYPE},
        2: {"piece": "</s>", "type": CONTROL_TYPE},
    }
    known.update({3 + byte: {"piece": f"<0x{byte:02X}>", "type": BYTE} for byte in range(256)})
    for facts in (GOLDEN["chatglm2_6b"], GOLDEN["chatglm3_6b"]):
        for case in (*facts["cases"], facts.get("naive_string_encode", {})):
            for id, piece in zip(case.get("ids", ()), case.get("toks", ()), strict=True):
                if id < size:
                    known.setdefault(id, {"piece": piece, "type": NORMAL})
    return _model(known, size, trained_chatglm2())


def _special_chatglm(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    ids = facts["special"]
    entries = [{"piece": piece, "id": id, "type": CONTROL_TYPE} for piece, id in ids.items() if piece in CONTROL]
    entries += [{"piece": piece, "id": ids[piece], "type": CONTROL_TYPE} for piece in ("<s>", "</s>", "<pad>")]
    entries += [{"piece": "<unk>", "id": ids["<unk>"], "type": UNKNOWN}, {"piece": "▁", "id": ids["▁"], "type": NORMAL}]
    entries += [{"piece": piece, "id": ids[piece], "type": USER_DEFINED} for piece in ("<n>", "<|tab|>")]
    first = ids["<|blank_2|>"]
    entries += [{"piece": f"<|blank_{size}|>", "id": first + size - 2, "type": USER_DEFINED} for size in range(2, 81)]
    entries += [{"piece": f"<0x{byte:02X}>", "id": ids["<0x00>"] + byte, "type": BYTE} for byte in range(256)]
    return entries


def _model(known: Mapping[int, Mapping[str, Any]], size: int, like: bytes) -> bytes:
    """A model of `size` ids with the normal form and the spaces of another; unknown ids are never used."""
    proto = import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    proto.ParseFromString(like)
    del proto.pieces[:]
    for id in range(size):
        entry = known.get(id, {"piece": f"\U00100000{id}", "type": UNUSED})
        # Where as many tokens could stand, those with lower ids do: they were merged first.
        score = -1 - id / 10_000_000 if entry["type"] == NORMAL else 0.0
        proto.pieces.add(piece=entry["piece"], score=score, type=entry["type"])
    proto.trainer_spec.model_type = 1  # unigram
    proto.trainer_spec.vocab_size = size
    return proto.SerializeToString()


def real_file(name: str) -> Path:
    """A real vocabulary file. Skips where CHATLOCAL_CHATGLM_VOCAB names neither it nor a folder that holds it."""
    named = os.environ.get("CHATLOCAL_CHATGLM_VOCAB")
    if not named:
        pytest.skip(f"CHATLOCAL_CHATGLM_VOCAB does not name {name}, or a folder that holds it: it may not be shipped")
    place = Path(named)
    found = [place] if place.name == name else sorted(place.rglob(name))
    if not found or not found[0].is_file():
        pytest.skip(f"{place} (CHATLOCAL_CHATGLM_VOCAB) is not and does not hold {name}")
    return found[0]
