"""The pre-norm transformer block, from lists of numbers to a real language model.

Shapes, one legend for the whole package:

    B batch      T positions        S positions including cached ones
    D width of the residual stream  H heads    d = D / H, width of a head
    F hidden width of SwiGLU        V vocabulary      [...] any leading axes

Where to look:

    plain       RMS, RMSNorm and the residual addition on lists of numbers
    autograd    the same, and a whole decoder, in NumPy, with gradients one can follow
    shapes      the shape checks that every layer shares
    taps        names for the values inside a forward pass; record or edit them
    config      ModelConfig, TrainConfig
    rope        rotary position embedding
    attention   causal self-attention and its cache
    layers      RMSNorm, LayerNorm, SwiGLU, the residual addition, the block and its variants
    variants    blocks of other designs
    initial     how weights are drawn
    model       TinyLM: embedding, blocks, final norm, logits
    tokenizer   tokenizers by character and by byte pairs; words: by whole words
    grammar     little stories whose entropy is known
    corpus      stories and real text as numbered rows
    train       training; history: how it went; resume: its state in a file
    generate    sampling
    checkpoint  one .safetensors file a model
    pretrained  real Llama-family checkpoints in TinyLM
    formats     how those are fetched and read: GGUF files, Hugging Face folders
    report      what a text does inside a model, and what is odd: in the terminal, as a page
    files       a file or a folder written whole or not at all
    extras      optional packages, named when they are missing
    probes      the numbers behind the lessons, a module a chapter
    exercises   check(), the checks, reference answers and known wrong answers
    plots       numbers -> picture
    widgets     controls around probes and plots
    lessons     the core lesson in a terminal
    cli         python -m tiny_lm
"""

__version__ = "0.1.0"
