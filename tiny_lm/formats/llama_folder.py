"""A Hugging Face folder of the Llama family, understood in the terms of TinyLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tiny_lm.config import ModelConfig
from tiny_lm.extras import need
from tiny_lm.formats.llama_file import IN_FOLDER, LlamaFile, Settings, names_in_file
from tiny_lm.rope import rope_angles
from tiny_lm.shapes import fail, shape_of
from tiny_lm.tokenizer import BytePairTokenizer

WHO = "Hugging Face folder"
FLOATS = ("F64", "F32", "F16", "BF16")


def open_folder(path: str | Path) -> LlamaFile:
    """Understand a folder with config.json and .safetensors files, one or several.

    Its q and k hold RoPE's pairs as (i, i + d/2); they are reordered as they are read. Raises
    ValueError for other architectures, settings that TinyLM does not have, tensors that are
    missing or left over, and weights that are not floats.
    """
    path = Path(path)
    settings = _json(path / "config.json")
    shards = _open_shards(path)
    config = _config(Settings(WHO, settings))
    found = _without_copies(shards, config)
    names = names_in_file(WHO, config, IN_FOLDER, found)
    stored = {our: shards[their].get_slice(their) for our, their in names.items()}
    for our, tensor in stored.items():
        if tensor.get_dtype() not in FLOATS:
            expected = f"{names[our]} of {', '.join(FLOATS)}"
            fail(WHO, expected, tensor.get_dtype(), "quantised weights are read from GGUF")

    def read(name: str, dtype: torch.dtype) -> Tensor:
        weight = shards[names[name]].get_tensor(names[name])
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = neighbouring_pairs(weight, config.d_head)
        return weight.to(dtype, copy=True)  # a copy, so that the file is free again

    shapes = {our: tuple(tensor.get_shape()) for our, tensor in stored.items()}
    return LlamaFile(config, shapes, read, _tokenizer(path, settings))


def neighbouring_pairs(weight: Tensor, head_width: int) -> Tensor:
    """Bring rows i and i + d/2 of every head together: `[H · d, D] -> [H · d, D]`.

    Rows 0 1 2 3 of a head become 0 2 1 3. Applied to q and k alike, scores stay as they were.
    Raises ValueError when the rows are not whole heads.
    """
    if weight.ndim != 2 or weight.shape[0] % head_width:
        fail("neighbouring_pairs", f"rows in heads of {head_width}", shape_of(weight))
    return weight.unflatten(0, (-1, 2, head_width // 2)).transpose(1, 2).flatten(0, 2)


def _config(settings: Settings) -> ModelConfig:
    family = settings.get("model_type")
    if family not in ("llama", "mistral"):
        fail(WHO, "model_type llama or mistral in config.json", repr(family))
    if family == "mistral" and "sliding_window" not in settings.found:
        fail(WHO, "sliding_window, a number or null", "none", "for mistral none means 4096")
    settings.expect("hidden_act", "silu", "swish")
    settings.expect("attention_bias", False)
    settings.expect("mlp_bias", False)
    settings.expect("partial_rotary_factor", 1)
    if settings.get("quantization_config"):
        fail(WHO, "weights that are not quantised", "a quantization_config", "take the GGUF")
    width, heads = settings.size("hidden_size"), settings.size("num_attention_heads")
    settings.expect("head_dim", width // heads)
    max_len = settings.size("max_position_embeddings")
    settings.expect_no_window("sliding_window", max_len)
    kinds = settings.get("layer_types", [])
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        fail(WHO, "layer_types of full_attention", repr(kinds)[:80])
    return ModelConfig(
        vocab_size=settings.size("vocab_size"),
        max_len=max_len,
        n_layers=settings.size("num_hidden_layers"),
        d_model=width,
        n_heads=heads,
        n_kv_heads=settings.size("num_key_value_heads", heads if family == "llama" else None),
        d_ff=settings.size("intermediate_size"),
        norm_eps=settings.number("rms_norm_eps", 1e-6),
        rope_theta=_theta(settings),
        tied=bool(settings.get("tie_word_embeddings", False)),
    )


def _theta(settings: Settings) -> float:
    """From rope_theta, or from rope_parameters, where newer files keep it; scaling is refused."""
    theta = settings.number("rope_theta", 10_000.0)
    for key in ("rope_scaling", "rope_parameters"):
        given = settings.get(key, {})
        if not isinstance(given, dict):
            fail(WHO, f"{key} as an object", repr(given))
        rope = Settings(f"{WHO}: {key}", given)
        rope.expect("rope_type", "default")
        rope.expect("type", "default")
        rope.expect("partial_rotary_factor", 1)
        theta = rope.number("rope_theta", theta)
    return theta


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        fail(WHO, f"a readable {path.name}", path, str(error))
    if not isinstance(found, dict):
        fail(WHO, f"an object in {path.name}", type(found).__name__)
    return found


def _open_shards(path: Path) -> dict[str, Any]:
    """Every tensor's open file: model.safetensors, the files of the index, or all there are."""
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").exists():
        files = ["model.safetensors"]
    elif index.exists():
        listed = _json(index).get("weight_map")
        if not isinstance(listed, dict):
            fail(WHO, "a weight_map in model.safetensors.index.json", type(listed).__name__)
        files = sorted(set(map(str, listed.values())))
    else:
        files = sorted(file.name for file in path.glob("*.safetensors"))
    if not files:
        fail(WHO, f"*.safetensors in {path}", "none", "pickled weights are not read")
    safetensors = need("safetensors")
    shards: dict[str, Any] = {}
    for file in files:
        if Path(file).name != file:
            fail(WHO, "files of the folder itself in the index", repr(file))
        try:
            shard = safetensors.safe_open(path / file, framework="pt")
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            fail(WHO, f"a whole {file}", path / file, str(error))
        for name in shard.keys():  # noqa: SIM118
            if name in shards:
                fail(WHO, "every tensor once", f"{name} again in {file}")
            shards[name] = shard
    return shards


def _without_copies(shards: dict[str, Any], config: ModelConfig) -> list[str]:
    """Leave out what older files store twice: a tied output matrix, and RoPE's frequencies.

    Both are compared before they are left out.
    """
    found = []
    for name, shard in shards.items():
        if name == "lm_head.weight" and config.tied:
            embedding = "model.embed_tokens.weight"
            if embedding not in shards or not torch.equal(
                shard.get_tensor(name), shards[embedding].get_tensor(embedding)
            ):
                fail(WHO, "lm_head.weight equal to the embedding, as it is tied", "another one")
        elif name.endswith("rotary_emb.inv_freq"):
            ours = rope_angles(torch.ones(1), config.d_head, config.rope_theta)[0]
            theirs = shard.get_tensor(name).double()
            if theirs.shape != ours.shape or not torch.allclose(theirs, ours, rtol=1e-2):
                fail(WHO, f"{name} of theta {config.rope_theta:g}", "other frequencies")
        else:
            found.append(name)
    return found


def _tokenizer(path: Path, settings: dict[str, Any]) -> BytePairTokenizer | None:
    if not (path / "tokenizer.json").exists():
        return None
    end: Any = None
    if (path / "tokenizer_config.json").exists():
        end = _json(path / "tokenizer_config.json").get("eos_token")
        end = end.get("content") if isinstance(end, dict) else end
    if end is None:
        end = settings.get("eos_token_id")
        end = end[0] if isinstance(end, list) and end else end
    if not isinstance(end, (str, int, type(None))):
        fail(WHO, "an end token, as text or id", repr(end))
    return BytePairTokenizer.from_file(path / "tokenizer.json", end)
