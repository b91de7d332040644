"""How each aten operator becomes nodes: one file for each family, all rows in ATEN."""

from typing import Any

import torch

from mlsdk.pipeline.ir import plugins
from mlsdk.pipeline.trace.aten import (  # noqa: F401  (importing a family registers its rows)
    backward,
    convolution,
    elementwise,
    indexing,
    loss,
    matmul,
    normalization,
    not_a_number,
    random,
    reduction,
    sampling,
    shape,
)
from mlsdk.pipeline.trace.aten.table import ATEN, Unsupported, row


def _overload(name: str) -> Any:
    """The torch operator "namespace::name.overload"."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")


for _name, _row in plugins.registry().lowerings.items():
    row(_overload(_name))(_row)

__all__ = ["ATEN", "Unsupported"]
