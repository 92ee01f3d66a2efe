"""Sentencepiece models, and copies of them in which some pieces go by names that no text holds.

Pieces that a model's makers defined themselves are found wherever a text spells them. What a user types must not become
one that means something else (a newline, the end of a turn): in a copy such a piece keeps its id and has a name that is
made up anew in each process.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from chatlocal.engine.errors import ModelLoadError

_NONCE = secrets.token_hex(8)
# Private-use characters at both ends: no other piece can begin before a name and reach into it.
NAME = re.compile(f"\U000f0000{_NONCE}([0-9]+)\U000f0001")


def load(path: Path) -> SentencePieceProcessor:
    """The processor of a model file. ModelLoadError when it is not one."""
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise ModelLoadError(
            f"{path} is not a sentencepiece model ({error}): if it is a Git LFS pointer or a broken download, fetch the"
            " file itself again."
        ) from error


def renamed(
    processor: SentencePieceProcessor, pieces: Collection[str]
) -> tuple[SentencePieceProcessor, dict[str, str]]:
    """A copy in which these pieces go by other names, and the names; `NAME` finds them, with the piece's id in them."""
    # Made by protobuf when it is imported, so type checkers cannot see into it.
    proto: Any = import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    proto.ParseFromString(processor.serialized_model_proto())
    names = {}
    for id, piece in enumerate(proto.pieces):
        if piece.piece in pieces:
            names[piece.piece] = piece.piece = f"\U000f0000{_NONCE}{id}\U000f0001"
    return SentencePieceProcessor(model_proto=proto.SerializeToString()), names
