"""The tokenizer that a GGUF file carries in its metadata, rebuilt with the `tokenizers` library.

Two families are read: byte-level BPE ("gpt2": tokens and merges, as in Llama 3 and SmolLM2), and
SentencePiece BPE ("llama": tokens and scores, as in Llama 2 and TinyLlama).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiny_lm.extras import need
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import BytePairTokenizer

LONGEST = 1000  # characters of a token; every way to cut one in two is looked at
CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type that are never cut up

# How text is cut before pairs are merged, by the file's name for it. The pattern is that of the
# library's own ByteLevel where it is None; "digits" makes every digit a token of its own.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS: dict[str, str | None] = {
    "gpt-2": None,
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), "digits"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), LLAMA_3),
}


def gguf_tokenizer(metadata: Mapping[str, Any]) -> BytePairTokenizer | None:
    """Build the tokenizer of a GGUF file, None when it has none: `metadata -> tokenizer`.

    Raises ValueError for a family or a way of cutting text that is not known here: a near miss
    would give wrong ids and say nothing.
    """
    family = metadata.get("tokenizer.ggml.model")
    if family is None:
        return None
    found = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    tokens = found.get("tokens")
    if not isinstance(tokens, list) or len(set(map(str, tokens))) != len(tokens) or not tokens:
        fail("GGUF tokenizer", "a list of different tokens", type(tokens).__name__)
    if (longest := max(map(len, map(str, tokens)))) > LONGEST:
        fail("GGUF tokenizer", f"tokens of at most {LONGEST} characters", longest)
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if not isinstance(family, str) or family not in builders:
        fail("GGUF tokenizer", f"a family of {' or '.join(builders)}", repr(family))
    need("tokenizers")
    try:
        tokenizer = builders[family](found, {token: i for i, token in enumerate(tokens)})
        _add_special(tokenizer, tokens, found.get("token_type", []))
        # llama.cpp's defaults for files that do not say whether a text begins with a token
        begins = family == "llama" or CUTS.get(found.get("pre")) == LLAMA_3
        if found.get("add_bos_token", begins):
            _add_begin(tokenizer, tokens, found.get("bos_token_id"))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        fail("GGUF tokenizer", "tokens, merges and ids that fit together", repr(error))
    end_id = found.get("eos_token_id")
    if end_id is not None and not isinstance(end_id, int):
        fail("GGUF tokenizer", "eos_token_id as a number", repr(end_id))
    return BytePairTokenizer(tokenizer, end_id)


def _byte_level(found: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    from tokenizers import Regex, decoders, pre_tokenizers

    kind = found.get("pre")
    if kind not in CUTS:
        fail("GGUF tokenizer", f"a pre-tokenizer of {', '.join(CUTS)}", repr(kind))
    cut, whole_words_first = CUTS[kind], CUTS[kind] == LLAMA_3
    merges = [tuple(merge.split(" ", 1)) for merge in found["merges"]]
    tokenizer = _tokenizer(vocabulary, merges, ignore_merges=whole_words_first)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut != LLAMA_3)
    if cut == "digits":
        steps = [pre_tokenizers.Digits(individual_digits=True), byte_level]
    elif cut == LLAMA_3:
        steps = [pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), byte_level]
    else:
        steps = [byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(found: Mapping[str, Any], vocabulary: dict[str, int]) -> Any:
    """Spaces become ▁; characters without a token become byte tokens such as <0x0A>."""
    from tokenizers import decoders, normalizers

    unknown = list(vocabulary)[found.get("unknown_token_id", 0)]
    merges = _merges_by_score(vocabulary, found["scores"])
    tokenizer = _tokenizer(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    spaces = [normalizers.Replace(" ", "▁")]
    undo = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if found.get("add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        undo.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer


def _tokenizer(vocabulary: dict[str, int], merges: list, **options: Any) -> Any:
    from tokenizers import Tokenizer, models

    try:
        return Tokenizer(models.BPE(vocabulary, merges, **options))
    except Exception as error:  # the library raises no narrower kind
        fail("GGUF tokenizer", "merges of known tokens", str(error))


def _merges_by_score(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the pair whose joined token scores highest; BPE wants that as a list."""
    merges = []
    for token, i in vocabulary.items():
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        pairs.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(-scores[i], pair) for pair in pairs]
    merges.sort(key=lambda merge: merge[0])
    return [pair for _, pair in merges]


def _add_special(tokenizer: Any, tokens: list[str], types: list[int]) -> None:
    from tokenizers import AddedToken

    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        chosen = [token for token, its in zip(tokens, types, strict=False) if its == kind]
        added = [AddedToken(token, normalized=False, special=special) for token in chosen]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)


def _add_begin(tokenizer: Any, tokens: list[str], begin_id: Any) -> None:
    from tokenizers.processors import TemplateProcessing

    if not isinstance(begin_id, int):
        fail("GGUF tokenizer", "bos_token_id, for texts that begin with it", repr(begin_id))
    begin = tokens[begin_id]
    try:
        tokenizer.post_processor = TemplateProcessing(
            single=[begin, "$A"], pair=[begin, "$A", "$B"], special_tokens=[(begin, begin_id)]
        )
    except ValueError as error:
        fail("GGUF tokenizer", "a token to begin a text with", repr(begin), str(error))
