"""What to write instead of what cannot be traced or compiled."""

from __future__ import annotations

import torch

aten = torch.ops.aten

_NEIGHBOURS = "shapes are static; sort, and compare neighbours"

# aten operator -> what is wrong when its operands are known only at run time, and what to write instead
DATA_DEPENDENT = {
    aten._local_scalar_dense.default: (
        "Python needs the value of a tensor (if, while, int(), float(), .item())",
        "it is known only when the program runs: return it to see it; in the function keep it a tensor, and choose with "
        "torch.where(condition, a, b); what begins at a computed place p is x[p], or x.narrow(axis, p, length)",
    ),
    aten.equal.default: (
        "torch.equal needs the values of tensors",
        "they are known only when the program runs; use (a == b).all() and torch.where",
    ),
    aten.allclose.default: (
        "torch.allclose needs the values of tensors",
        "they are known only when the program runs; use torch.isclose(a, b).all() and torch.where",
    ),
    aten.repeat_interleave.Tensor: (
        "repeat_interleave has as many results as the counts say",
        "shapes are static; give their sum as output_size, or pad to the largest one",
    ),
    **dict.fromkeys(
        (aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default),
        ("unique has as many results as there are different elements", _NEIGHBOURS),
    ),
    aten.nonzero.default: (
        "nonzero has as many results as there are non-zero elements",
        "shapes are static; keep all elements and choose with torch.where(condition, a, b)",
    ),
    aten.masked_select.default: (
        "a selection by mask has as many results as the mask has True",
        "shapes are static; use torch.where(mask, x, 0), or multiply by the mask",
    ),
    aten.bincount.default: (
        "bincount has as many results as the largest element says",
        "shapes are static; use torch.zeros(n).scatter_add(0, x, torch.ones_like(x, dtype=torch.float32))",
    ),
    aten.linalg_lstsq.default: (
        "lstsq finds the rank of a matrix from its values",
        "use torch.linalg.solve(a.mT @ a, a.mT @ b), or a QR decomposition and solve_triangular",
    ),
}
DYNAMIC_SHAPE = ("has a result whose shape depends on values", "shapes are static; use an operator with a fixed shape")

# What a function of torch asks of a tensor only to raise an error, as it is when there is none.
ASSUMED = {"gaussian_nll_loss": 0}

# What to write instead of functions of torch that need the value of a tensor.
INSTEAD = {
    "clip_grad_norm_": "leave error_if_nonfinite out",
}

# What to do about operators that are refused whatever torch makes of them.
WITHOUT = {
    aten._amp_foreach_non_finite_check_and_unscale_.default: "gradients are single in mixed, too: leave the GradScaler out",
    aten._nested_tensor_from_tensor_list.default: "pad to one length, and mask what is behind the ends",
    aten._pack_padded_sequence.default: (
        "sequences are not packed: give the layer the padded ones, and mask what is behind their ends "
        "(torch.where(torch.arange(steps) < lengths[:, None], ...); the last state is the result at lengths - 1)"
    ),
}

_VALUES = "compute it outside of the function; for a symmetric matrix some rounds of torch.linalg.qr may do"
_SMALL = "matrices of more than 32 columns are not supported; compute it outside of the function"

# Operators without a row, by name, and what to write instead.
OPERATORS = {
    "aten::_linalg_svd": _VALUES,
    "aten::_linalg_eigh": _VALUES,
    "aten::linalg_eig": _VALUES,
    "aten::_linalg_eigvals": _VALUES,
    "aten::linalg_pinv": "use torch.linalg.solve(a.mT @ a, a.mT)",
    "aten::view": "convert the values with .to(dtype); bits are not looked at in another dtype",
    "aten::nextafter": "scale instead, for example x * (1 + torch.finfo(x.dtype).eps)",
    "aten::unique_dim": _NEIGHBOURS,
    "aten::_to_sparse": "keep it dense, or multiply by its elements: torch.zeros(n, k).index_add(0, rows, x[columns] * values)",
    "aten::quantize_per_tensor": "torch.fake_quantize_per_tensor_affine rounds in the same way and stays float",
    **dict.fromkeys(
        ("transformers::grouped_mm_fallback", "transformers::grouped_mm_fallback_backward"),
        "model.set_experts_implementation('batched_mm') needs no values",
    ),
    **dict.fromkeys(
        (
            "aten::linalg_lu_factor_ex", "aten::linalg_lu", "aten::linalg_lu_solve", "aten::_linalg_solve_ex",
            "aten::linalg_inv_ex", "aten::_linalg_det", "aten::_linalg_slogdet", "aten::linalg_solve_triangular",
            "aten::linalg_cholesky_ex", "aten::cholesky_solve", "aten::cholesky_inverse", "aten::linalg_qr",
        ),
        _SMALL,
    ),
}  # fmt: skip

# Operators that take functions, by name, and what to write instead.
ROUNDS = "write a loop in Python, of a fixed number of rounds; torch.where(goes_on, new, old) keeps what is finished"
HIGHER_ORDER = {
    **dict.fromkeys(("while_loop", "scan", "associative_scan", "map_impl"), ROUNDS),
    "flex_attention": "use scaled_dot_product_attention with attn_mask",
}

COMPLEX = "complex numbers are pairs of real tensors, and this has no form for them: write it with x.real and x.imag"
