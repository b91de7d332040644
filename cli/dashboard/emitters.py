"""What the names of emitters and kernels say: `gemm:hst` to a sentence."""

from __future__ import annotations

#: how the matrix unit multiplies: the kernels of gemm and conv
PRODUCTS = {
    "h": "products of halves; weights in half",
    "hs": "products of halves; weights in single, made halves on their way",
    "hm": "as hs, with weights that lie across the MABs, where a training step updates them",
    "ht": "as h, with weights read across (transposed on their way)",
    "hx": "as h, with computed weights read across (transposed on their way)",
    "hst": "as hm, with weights read across (transposed on their way)",
    "f": "products of singles",
    "d": "products of doubles",
}
EMITTERS = {
    "view": "a view: the same elements in the same places, no instruction",
    "host": "computed by the host, between two parts of the program",
    "move": "elements brought to another layout, or rearranged",
    "fetch": "rows brought from where they lie in DRAM, at addresses that the PEs compute",
    "copy": "a copy inside DRAM",
    "elementwise": "tile by tile through local memory",
}


def meaning(kind: str) -> str:
    """Of `emitter:kernel`; empty where the name says it all."""
    emitter, _colon, kernel = kind.partition(":")
    if emitter in ("gemm", "conv"):
        return PRODUCTS.get(kernel, "")
    if kind == "elementwise:fused":
        return "several elementwise operators in one pass through local memory"
    return EMITTERS.get(emitter, "")
