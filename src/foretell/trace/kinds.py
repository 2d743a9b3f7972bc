"""Which family of kernels an operation of PyTorch belongs to, and the sizes of its kernel.

What is not listed is a pass over its inputs and results where PyTorch's tag `pointwise` says so. Any other,
as one of another library, is unknown, and charged by its bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

Sizes = Mapping[str, float]
"""Sizes of a kernel by name."""

NO_KERNEL = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ set_ alias "
    "as_strided_ squeeze_ unsqueeze_ t_ transpose_ lift lift_fresh lift_fresh_copy result_type "
    "is_nonzero _efficientzerotensor".split()
)
"""Operations that start no kernel, though some make a tensor."""
SKIPPED = frozenset(
    "detach detach_ device size stride storage_offset dim numel is_contiguous layout _is_all_true "
    "sym_size sym_numel sym_stride _assert_async _assert_scalar _assert_tensor_metadata".split()
)
"""What the tracer sees and a device never does."""
_BY_NAME = {
    "sync": "_local_scalar_dense item equal nonzero masked_select unique _unique2 unique_dim "
    "unique_consecutive bincount",
    "fill": "zeros ones full fill_ zero_ zeros_like ones_like full_like new_zeros new_ones new_full "
    "arange eye scalar_tensor rand randn randint randperm rand_like randn_like randint_like normal_ "
    "uniform_ bernoulli_ random_ exponential_ normal bernoulli linspace tril_indices triu_indices",
    "copy": "clone copy_ _to_copy cat stack contiguous constant_pad_nd roll flip slice_backward "
    "select_backward slice_scatter select_scatter diagonal_backward unfold_backward as_strided_scatter "
    "repeat pixel_shuffle pixel_unshuffle im2col col2im reflection_pad2d replication_pad2d "
    "split_with_sizes_copy expand_copy channel_shuffle tril triu",
    "norm": "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward "
    "native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward "
    "_fused_rms_norm _fused_rms_norm_backward _native_batch_norm_legit _batch_norm_with_update "
    "batch_norm_backward",
    "reduce": "sum mean amax amin max min argmax argmin prod var var_mean std std_mean norm logsumexp "
    "linalg_vector_norm all any _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
    "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward aminmax count_nonzero "
    "_safe_softmax _weight_norm_interface _weight_norm_interface_backward _euclidean_dist "
    "_cdist_forward _cdist_backward dot vdot mv addmv trace mse_loss binary_cross_entropy",
    "pointwise": "native_dropout floor_divide floor_divide_ softplus_backward mse_loss_backward histc "
    "smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward affine_grid_generator "
    "binary_cross_entropy_with_logits binary_cross_entropy_backward glu glu_backward",
    "pool": "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward avg_pool3d avg_pool3d_backward "
    "upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward "
    "upsample_bicubic2d upsample_bicubic2d_backward upsample_nearest1d upsample_nearest3d "
    "upsample_nearest1d_backward upsample_nearest3d_backward grid_sampler_2d grid_sampler_2d_backward "
    "max_pool3d_with_indices max_pool3d_with_indices_backward _adaptive_avg_pool3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa upsample_linear1d upsample_linear1d_backward",
    "gather": "embedding index index_select gather take take_along_dim _embedding_bag masked_fill_gather",
    "scatter": "index_put index_put_ _index_put_impl_ index_add index_add_ scatter scatter_ scatter_add "
    "scatter_add_ scatter_reduce scatter_reduce_ embedding_dense_backward index_copy index_copy_ "
    "masked_scatter masked_scatter_ _embedding_bag_backward index_fill index_fill_",
    "sort": "sort topk argsort msort kthvalue median nanmedian multinomial mode searchsorted bucketize",
    "scan": "cumsum cumprod cummax cummin logcumsumexp cumsum_ cumprod_ _cummax_helper",
    "fft": "_fft_r2c _fft_c2r _fft_c2c",
    "solve": "linalg_inv_ex linalg_qr _linalg_svd _linalg_eigh linalg_cholesky_ex _linalg_solve_ex "
    "linalg_solve_triangular triangular_solve _linalg_det _linalg_slogdet",
}  # fmt: skip
KINDS: Mapping[str, str] = {
    name: kind for kind, names in _BY_NAME.items() for name in names.split()
}
"""Name of an operation, without its overload -> its family; products are in PRODUCTS."""


def _mm(a: Any, b: Any) -> dict[str, float]:
    return {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "batch": 1.0}


def _bmm(a: Any, b: Any) -> dict[str, float]:
    return {"m": a.shape[1], "n": b.shape[2], "k": a.shape[2], "batch": a.shape[0]}


PRODUCTS: Mapping[str, Callable[..., dict[str, float]]] = {
    "mm": lambda a, b, *_, **__: _mm(a, b),
    "addmm": lambda _, a, b, *__, **___: _mm(a, b),
    "_addmm_activation": lambda _, a, b, *__, **___: _mm(a, b),
    "bmm": lambda a, b, *_, **__: _bmm(a, b),
    "baddbmm": lambda _, a, b, *__, **___: _bmm(a, b),
    "baddbmm_": lambda _, a, b, *__, **___: _bmm(a, b),
    "_scaled_mm": lambda a, b, *_, **__: _mm(a, b),
}
"""Matrix products -> their sizes from their arguments."""


def convolution_sizes(
    rows: Sequence[int],
    kernel: Sequence[int],
    results: Sequence[int],
    *,
    groups: int,
    transposed: bool,
    masks: Sequence[bool] = (),
) -> dict[str, float]:
    """Sizes of a convolution from the shapes of its input, its weights and its result; `masks` say which
    gradients a backward pass makes: of the input, of the weights, of the bias."""
    found: dict[str, float] = {
        "batch": rows[0],
        "inputs": rows[1],
        "outputs": results[1],
        "taps": prod(kernel[2:]),
        "width": kernel[-1],
        "in_points": prod(rows[2:]),
        "out_points": prod(results[2:]),
        "dimensions": len(rows) - 2,
        "groups": groups,
        "transposed": float(transposed),
    }
    for name, made in zip(("to_input", "to_weights", "to_bias"), masks, strict=False):
        found[name] = float(made)
    return found


def convolution_flops(sizes: Sizes) -> float:
    """Operations of one product of a convolution: forward, or one gradient."""
    points = sizes["in_points"] if sizes["transposed"] else sizes["out_points"]
    channels = sizes["inputs"] * sizes["outputs"] / sizes["groups"]
    return 2.0 * sizes["batch"] * points * channels * sizes["taps"]


def attention_sizes(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *, causal: bool, masked: bool
) -> dict[str, float]:
    """Sizes of fused attention from the shapes of its inputs, (batch, heads, tokens, channels)."""
    pairs: float = query[2] * key[2]
    if causal:
        short = min(query[2], key[2])
        pairs = short * (short + 1) / 2 + max(query[2] - short, 0) * key[2]
    return {
        "batch": query[0],
        "heads": query[1],
        "kv_heads": key[1],
        "q_len": query[2],
        "kv_len": key[2],
        "pairs": pairs,
        "qk_dim": query[3],
        "v_dim": value[3],
        "masked": float(masked),
    }


def attention_flops(sizes: Sizes, *, backward: bool) -> float:
    """Operations of fused attention: two products forward, five backward."""
    qk, v = (3.0, 2.0) if backward else (1.0, 1.0)
    each = qk * sizes["qk_dim"] + v * sizes["v_dim"]
    return 2.0 * sizes["batch"] * sizes["heads"] * sizes["pairs"] * each
