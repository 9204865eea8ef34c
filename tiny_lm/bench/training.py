"""How long a step of training takes: the same small model by several libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW

from tiny_lm.bench.contest import Contest, Way, missing
from tiny_lm.bench.floor import FLOOR, floor
from tiny_lm.fast import speed_up
from tiny_lm.model import ModelConfig, TinyLM

V, T, B, L, H, D, F = 256, 128, 16, 4, 4, 128, 344  # 0.82 million parameters
FAST, BASE = "tiny_lm, fast", "transformers, Llama"
MIXED = "tiny_lm, fast, bf16 autocast"
COMPILED = "tiny_lm, fast, compiled"
BOTH = "tiny_lm, fast, compiled, bf16"


def contests(
    device: str = "cpu", quick: bool = False, compiled: bool = False
) -> Iterator[Contest | str]:
    """Forward, loss, backward and fused AdamW, in float32 where nothing else is said.

    The first library at hand is the base; a mark is for transformers as the base alone.
    """
    ways = {name: step(make(), device, read) for name, (make, read) in libraries().items()}
    ways[FAST] = step(speed_up(tiny()), device)
    ways["tiny_lm, taught"] = step(tiny(), device)
    ways[MIXED] = step(speed_up(tiny()), device, mixed=True)
    if compiled:
        for name, mixed in ((COMPILED, False), (BOTH, True)):
            ways[name] = step(torch.compile(speed_up(tiny())), device, mixed=mixed)
            start = time.perf_counter()
            ways[name]()
            seconds = time.perf_counter() - start
            yield f"{name}: {seconds:.0f} s to the first step; less if it was compiled before"
    ways[FLOOR] = floor(speed_up(tiny().to(device)), B, T, scored=B * T, learned=True)
    marks = {FAST: 0.70, MIXED: 0.5, COMPILED: 0.5, BOTH: 0.5} if BASE in ways else {}
    work = f"training step, {sum(p.numel() for p in tiny().parameters()) / 1e6:.2f} M parameters"
    yield Contest(f"{work}, [{B}, {T}] tokens", ways, marks, 5 if quick else 30)
    yield curves(device, 5 if quick else 30, compiled)


def curves(device: str, steps: int, compiled: bool = False) -> str:
    """What 16 bits change: the losses of the same steps in float32 and under autocast."""
    lines = [f"losses of the same {steps} steps, every fifth, in nats a token:"]
    plans = [("float32", False, False), ("bf16 autocast", True, False)]
    plans += [("compiled, bf16", True, True)] if compiled else []
    for name, mixed, traced in plans:
        model = speed_up(tiny())
        way = step(torch.compile(model) if traced else model, device, mixed=mixed, lr=3e-3)
        losses = [float(way()) for _ in range(steps)]
        shown = "  ".join(f"{loss:.4f}" for loss in losses[4::5])
        lines.append(f"  {name:<34} {shown}")
    return "\n".join(lines)


def tiny() -> TinyLM:
    """The model of the contest as this package has it."""
    config = {"vocab_size": V, "max_len": T, "n_layers": L, "d_model": D, "n_heads": H, "d_ff": F}
    return TinyLM(ModelConfig(**config))


def libraries() -> dict[str, tuple[Callable[[], nn.Module], Callable]]:
    """The same model by the libraries that are here: how to make it, how to read its logits."""
    known = {
        BASE: ("transformers", _llama, lambda output: output.logits),
        "litgpt, GPT": ("litgpt", _litgpt, _same),
        "x-transformers, Decoder": ("x_transformers", _x_transformers, _same),
    }
    return {
        name: (make, read)
        for name, (package, make, read) in known.items()
        if not any(missing([package]))
    }


def step(
    model: nn.Module,
    device: str,
    read: Callable | None = None,
    *,
    mixed: bool = False,
    lr: float = 1e-4,
) -> Way:
    """One step of training on rows that stay the same."""
    model = model.to(device)
    optimizer = AdamW(model.parameters(), lr=lr, fused=True)
    rows = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(0)).to(device)
    read = read or _same

    def way() -> Tensor:
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=mixed):
            logits = read(model(rows[:, :-1]))
        loss = cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return way


def _same(output: Tensor) -> Tensor:
    return output


def _llama() -> nn.Module:
    transformers = import_module("transformers")
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=V,
            hidden_size=D,
            intermediate_size=F,
            num_hidden_layers=L,
            num_attention_heads=H,
            max_position_embeddings=T,
            tie_word_embeddings=True,
            rms_norm_eps=1e-5,
        )
    )


def _litgpt() -> nn.Module:
    litgpt = import_module("litgpt")
    return litgpt.GPT(  # its output matrix is one of its own
        litgpt.Config(
            block_size=T,
            n_layer=L,
            n_embd=D,
            n_head=H,
            padded_vocab_size=V,
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=F,
        )
    )


def _x_transformers() -> nn.Module:
    theirs = import_module("x_transformers")
    return theirs.TransformerWrapper(
        num_tokens=V,
        max_seq_len=T,
        use_abs_pos_emb=False,
        tie_embedding=True,
        attn_layers=theirs.Decoder(
            dim=D,
            depth=L,
            heads=H,
            attn_dim_head=D // H,
            rotary_pos_emb=True,
            rotary_emb_dim=D // H,
            use_rmsnorm=True,
            attn_flash=True,
            ff_swish=True,
            ff_glu=True,
            ff_no_bias=True,
            ff_mult=F / D,
        ),
    )
