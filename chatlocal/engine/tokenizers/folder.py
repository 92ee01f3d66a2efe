"""A checkpoint folder -> the tokenizer that transformers has no class for, or does not read rightly.

Told by the files, by `tokenizer_class` in tokenizer_config.json and by `model_type` in config.json. The code that such
repositories bring is never run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.tokenizers import sentencepiece_model
from chatlocal.engine.tokenizers.chatglm import ChatGLMTokenizer
from chatlocal.engine.tokenizers.chatglm2 import ChatGLM2Tokenizer, ChatGLM3Tokenizer
from chatlocal.engine.tokenizers.glm4 import glm4_tokenizer
from chatlocal.engine.tokenizers.qwen import qwen_tokenizer
from chatlocal.engine.tokenizers.tiktoken_file import is_tiktoken

# In their class for it transformers ranks the merges of a tokenizer.model wrongly: two spaces before a word come out as
# one token and the word. What it makes of the same file without a class gives sentencepiece's own ids.
_MISREAD = "LlamaTokenizer"


def native_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder, None for one that transformers reads rightly by itself.

    ModelLoadError for a broken file. It is a tokenizer of transformers, or for ChatGLM one of chatlocal's own.
    """
    declared = _read_json(folder / "tokenizer_config.json")
    model = _read_json(folder / "config.json")
    name = str(declared.get("tokenizer_class") or "").removesuffix("Fast")
    if (folder / "tokenizer.json").is_file():
        return _generic(folder) if "auto_map" in declared and not _has_class(name) else None
    if (folder / "qwen.tiktoken").is_file():
        return _named(qwen_tokenizer(folder / "qwen.tiktoken", **_options(folder, declared)), folder)
    if (folder / "ice_text.model").is_file():
        return _chatglm(folder / "ice_text.model", declared)
    vocab_file = folder / "tokenizer.model"
    if not vocab_file.is_file():
        return None
    is_chatglm = model.get("model_type") == "chatglm"
    if is_tiktoken(vocab_file):
        if name != "ChatGLM4Tokenizer" and not (is_chatglm and not name):
            return None
        added = {int(id): token["content"] for id, token in declared.get("added_tokens_decoder", {}).items()}
        return _named(glm4_tokenizer(vocab_file, added, **_options(folder, declared)), folder)
    if name == "ChatGLMTokenizer" or (is_chatglm and not name):
        kind = ChatGLM3Tokenizer if _knows_roles(folder, declared, model) else ChatGLM2Tokenizer
        return kind(vocab_file, **_own_options(folder, declared))
    if _has_class(name) and name != _MISREAD:
        return None
    sentencepiece_model.load(vocab_file)  # its error is clear where transformers' is not
    # The begin token goes before a text where nothing says otherwise: so it is in the classes that are not run.
    return _generic(folder, add_bos_token=declared.get("add_bos_token", True))


def _generic(folder: Path, **options: Any) -> Any:
    """Transformers' reading of tokenizer.json or a sentencepiece file, without a class of the model's own."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True, **options)


def _has_class(name: str) -> bool:
    """Whether transformers has a tokenizer of this name."""
    import transformers

    return bool(name) and hasattr(transformers, name)


def _chatglm(vocab_file: Path, declared: dict[str, Any]) -> ChatGLMTokenizer:
    if declared.get("num_image_tokens", 0):
        raise ModelLoadError(
            f"{vocab_file.parent} is of the first release of ChatGLM-6B, whose ids begin behind"
            f" {declared['num_image_tokens']} image tokens: download the newest release."
        )
    return ChatGLMTokenizer(
        vocab_file,
        do_lower_case=bool(declared.get("do_lower_case")),
        remove_space=bool(declared.get("remove_space")),
        **_own_options(vocab_file.parent, declared),
    )


def _knows_roles(folder: Path, declared: dict[str, Any], model: dict[str, Any]) -> bool:
    """ChatGLM3 rather than ChatGLM2, whose files are alike: by the names they give, or a role token that is spelled."""
    names = " ".join(str(name) for name in (model.get("_name_or_path"), declared.get("name_or_path"), folder.name))
    if "chatglm3" in names.lower():
        return True
    if "chatglm2" in names.lower() or "codegeex2" in names.lower():
        return False
    code = folder / "tokenization_chatglm.py"
    return "<|user|>" in json.dumps(declared) or (code.is_file() and "<|user|>" in code.read_text(encoding="utf-8"))


def _options(folder: Path, declared: dict[str, Any]) -> dict[str, Any]:
    given = {name: declared[name] for name in ("model_max_length", "eos_token", "pad_token") if declared.get(name)}
    plain = {name: value["content"] if isinstance(value, dict) else value for name, value in given.items()}
    return {**plain, "chat_template": _template(folder, declared)}


def _own_options(folder: Path, declared: dict[str, Any]) -> dict[str, Any]:
    limit = declared.get("model_max_length")
    return {"chat_template": _template(folder, declared), "model_max_length": int(limit) if limit else None}


def _template(folder: Path, declared: dict[str, Any]) -> Any:
    file = folder / "chat_template.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else declared.get("chat_template")


def _named(tokenizer: Any, folder: Path) -> Any:
    # Not as an argument: with a name transformers asks the hub whether the model is one of Mistral's.
    tokenizer.name_or_path = str(folder)
    return tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"{path} is not JSON ({error}): download it again.") from error
    if not isinstance(read, dict):
        raise ModelLoadError(f"{path} is not a JSON object: download it again.")
    return read
