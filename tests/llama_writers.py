"""One set of weights written as others write it: GGUF files and Hugging Face folders, tiny ones.

Nothing here comes from the readers in tiny_lm: the names are spelt out, and the order of rows that
Hugging Face keeps is made by listing row numbers.
"""

import json

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from tiny_lm.model import ModelConfig, TinyLM

# On tensors this small a second thread costs far more than it brings.
torch.set_num_threads(1)

SMALL = {
    "vocab_size": 50,
    "max_len": 32,
    "n_layers": 2,
    "d_model": 64,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 96,
    "norm_eps": 1e-5,
    "rope_theta": 100_000.0,
}


def small_model(seed=0, **changes):
    """Weights of std 0.2: at 0.02 a mistake in RoPE hides (C32). Gains are not all ones."""
    model = TinyLM(ModelConfig(**(SMALL | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in name else 0.0, 0.2, generator=generator)
    return model.eval()


def some_tokens(rows=2, columns=9, vocab=50, seed=1):
    return torch.randint(vocab, (rows, columns), generator=torch.Generator().manual_seed(seed))


def in_gguf(model):
    """{name in GGUF: tensor}"""
    tensors = {
        "token_embd.weight": model.embedding.weight,
        "output_norm.weight": model.norm_final.scale,
    }
    if model.output is not None:
        tensors["output.weight"] = model.output.weight
    for i, block in enumerate(model.blocks):
        tensors[f"blk.{i}.attn_norm.weight"] = block.norm1.scale
        tensors[f"blk.{i}.attn_q.weight"] = block.attention.q_proj.weight
        tensors[f"blk.{i}.attn_k.weight"] = block.attention.k_proj.weight
        tensors[f"blk.{i}.attn_v.weight"] = block.attention.v_proj.weight
        tensors[f"blk.{i}.attn_output.weight"] = block.attention.out_proj.weight
        tensors[f"blk.{i}.ffn_norm.weight"] = block.norm2.scale
        tensors[f"blk.{i}.ffn_gate.weight"] = block.ffn.gate_proj.weight
        tensors[f"blk.{i}.ffn_up.weight"] = block.ffn.up_proj.weight
        tensors[f"blk.{i}.ffn_down.weight"] = block.ffn.down_proj.weight
    return {name: tensor.detach() for name, tensor in tensors.items()}


def gguf_settings(model):
    c = model.config
    return {
        "llama.context_length": c.max_len,
        "llama.embedding_length": c.d_model,
        "llama.block_count": c.n_layers,
        "llama.feed_forward_length": c.d_ff,
        "llama.attention.head_count": c.n_heads,
        "llama.attention.head_count_kv": c.n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": c.norm_eps,
        "llama.rope.freq_base": c.rope_theta,
        "llama.rope.dimension_count": c.d_model // c.n_heads,
        "llama.vocab_size": c.vocab_size,
    }


def write_gguf(path, model, change=None, *, family="llama", edit=None, kind="F32"):
    """`change` overrides settings (None removes one); `edit` changes the tensors on their way."""
    writer = gguf.GGUFWriter(path, family)
    for key, value in (gguf_settings(model) | (change or {})).items():
        if value is None:
            continue
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add |= {str: writer.add_string, list: writer.add_array}
        add[type(value)](key, value)
    tensors = in_gguf(model)
    tensors = edit(tensors) if edit else tensors
    kind = gguf.GGMLQuantizationType[kind]
    for name, tensor in tensors.items():
        matrix = kind if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(
            name, gguf.quantize(tensor.numpy().astype(np.float32), matrix), raw_dtype=matrix
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def halves(weight, d):
    """The rows of each head in Hugging Face's order: even ones first, then the odd ones."""
    order = [
        first + i for first in range(0, len(weight), d) for i in [*range(0, d, 2), *range(1, d, 2)]
    ]
    return weight[order]


def in_folder(model):
    """{name in a Hugging Face folder: tensor}"""
    d = model.config.d_model // model.config.n_heads
    tensors = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.norm_final.scale,
    }
    if model.output is not None:
        tensors["lm_head.weight"] = model.output.weight
    for i, block in enumerate(model.blocks):
        under = f"model.layers.{i}."
        tensors[under + "input_layernorm.weight"] = block.norm1.scale
        tensors[under + "self_attn.q_proj.weight"] = halves(block.attention.q_proj.weight, d)
        tensors[under + "self_attn.k_proj.weight"] = halves(block.attention.k_proj.weight, d)
        tensors[under + "self_attn.v_proj.weight"] = block.attention.v_proj.weight
        tensors[under + "self_attn.o_proj.weight"] = block.attention.out_proj.weight
        tensors[under + "post_attention_layernorm.weight"] = block.norm2.scale
        tensors[under + "mlp.gate_proj.weight"] = block.ffn.gate_proj.weight
        tensors[under + "mlp.up_proj.weight"] = block.ffn.up_proj.weight
        tensors[under + "mlp.down_proj.weight"] = block.ffn.down_proj.weight
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def folder_settings(model):
    c = model.config
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_len,
        "num_hidden_layers": c.n_layers,
        "hidden_size": c.d_model,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "intermediate_size": c.d_ff,
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": c.tied,
    }


ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()  # a name of its own in test ids


def write_folder(path, model, change=None, *, shards=1, edit=None):
    """`change` overrides settings (ABSENT removes one); `edit` changes the tensors on their way."""
    path.mkdir(exist_ok=True)
    settings = folder_settings(model) | (change or {})
    settings = {key: value for key, value in settings.items() if value is not ABSENT}
    (path / "config.json").write_text(json.dumps(settings))
    tensors = in_folder(model)
    tensors = edit(tensors) if edit else tensors
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path
    listed, names = {}, list(tensors)
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::shards]}, path / file)
        listed |= dict.fromkeys(names[i::shards], file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return path


def logits_with_halves(tensors, config, tokens):
    """What a Hugging Face folder means, computed from its own tensors without tiny_lm, in float64.

    RoPE turns (i, i + d/2); every group of query heads reads one key/value head.
    """
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    d = config.d_model // config.n_heads
    B, T = tokens.shape
    angles = torch.arange(T).double()[:, None] * config.rope_theta ** (
        -torch.arange(0, d, 2).double() / d
    )
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * weights[name]

    def turned(x):  # [T, d]
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(config.n_layers):
        under = f"model.layers.{i}."
        h = norm(x, under + "input_layernorm.weight")
        q, k, v = (h @ weights[f"{under}self_attn.{name}_proj.weight"].T for name in "qkv")
        mixed = torch.zeros_like(h)
        for head in range(config.n_heads):
            group = head // (config.n_heads // config.n_kv_heads)
            own, shared = slice(head * d, head * d + d), slice(group * d, group * d + d)
            for row in range(B):
                scores = turned(q[row, :, own]) @ turned(k[row, :, shared]).T / d**0.5
                scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
                mixed[row, :, own] = scores.softmax(-1) @ v[row, :, shared]
        x = x + mixed @ weights[under + "self_attn.o_proj.weight"].T
        h = norm(x, under + "post_attention_layernorm.weight")
        gate, up = (h @ weights[f"{under}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + (gate * gate.sigmoid() * up) @ weights[under + "mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return norm(x, "model.norm.weight") @ head.T
