"""The exercises in the order of the book."""

CHAPTERS = {
    0: "add_vectors",
    1: (
        "residual_add ledger minus_half dead_slope residual_gradient gradient_factor overflow "
        "turned opposition swallowed"
    ),
    2: (
        "rms ten_times misprint rms_norm shift norm_parameters rms_jacobian gain_gradient "
        "measured_slope"
    ),
    3: (
        "knee half_size same_eps zero_gradient radial nan_gradient eps_outside fp16_largest "
        "fp16_eps fp16_norm beyond_float32 find_eps"
    ),
    4: (
        "second_norm causal_weights split_heads rotate rope_layouts cache_positions kv_heads "
        "swiglu block_forward around zero_branches leaky_attention leaks museum fold_gain "
        "model_parameters"
    ),
    5: "two_laws largest_gain output_scale ruling same_directions mean_path first_step",
    6: "small_entropy perplexity untrained next_token learning_rate decays safe_rate",
    7: (
        "write_share decisive_write lens_entropy remove_at silent_write share_and_drop "
        "exact_surgery"
    ),
    8: "massive_places what_is_left feels_eps safe_row text_perplexity cached_work",
    9: "floor dyt largest_score apart whole_step defend",
}
ORDER = [name for names in CHAPTERS.values() for name in names.split()]
