"""docs/api.md, written from the docstrings: `python -m mlsdk.manual > docs/api.md`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

INTRODUCTION = """\
# The programming interface

This page is written from the docstrings by `python -m mlsdk.manual`; a test keeps it current. Programs written for the
official MLSDK's documented interface are meant to run unchanged. Errors are classes of `mlsdk.errors`, all of them
`MLSDKError`; how values travel between host and device is told in `docs/runtime.md`, what becomes of numbers in
`docs/numerics.md`. The traceback of such an error holds the program's own lines; with `MLSDK_DEBUG=1` it holds ours too.
`import mncore`, which older programs begin with, does nothing.
"""

# Heading -> what stands under it: `module:name`, with `*` its public methods too.
SECTIONS = {
    "Devices and Contexts": ("mlsdk:MNDevice", "mlsdk:Context*"),
    "Compiled functions": ("mlsdk:CompiledFunction*", "mlsdk:IOSpec*", "mlsdk:CacheOptions", "mlsdk.storage:path"),
    "Tensors on the device": ("mlsdk:TensorProxy*", "mlsdk.registry:Registry*"),
    "Names": (
        "mlsdk:set_tensor_name",
        "mlsdk:set_tensor_name_in_module",
        "mlsdk:get_tensor_name",
        "mlsdk:set_buffer_name_in_optimizer",
    ),
    "Optimizers": (
        "mlsdk:MNCoreOptimizer",
        "mlsdk:MNCoreSGD",
        "mlsdk:MNCoreAdam",
        "mlsdk:MNCoreAdamW",
        "mlsdk:MNCoreLRScheduler*",
    ),
    "Timelines": ("mlsdk:trace_scope", "mlsdk:trace_event"),
    "Arguments of compile_automap": ("mlsdk:register_pytree_namedtuple", "mlsdk:register_pytree_dataclass"),
    "Language models": (
        "mlsdk.experimental.llm.attention_mask:prepare_4d_causal_attention_mask_with_cache_position",
        "mlsdk.experimental.llm.kv_cache:kv_cache_to_legacy",
        "mlsdk.experimental.llm.kv_cache:kv_cache_to_plamo",
        "mlsdk.experimental.llm.kv_cache:kv_cache_to_tensor",
        "mlsdk.experimental.llm.modeling_staged_llama:split_llama",
    ),
    "The linter": ("fx2onnx.linter:lint", "fx2onnx.linter:LintResult", "fx2onnx.linter:LintLevel"),
}


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, entries in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for entry in entries:
            parts += described(entry)
    parts += ["## Errors\n", *errors()]
    return "\n".join(parts)


def described(entry: str) -> Iterator[str]:
    module, _, name = entry.rstrip("*").partition(":")
    thing = getattr(importlib.import_module(module), name)
    shown = name if module == "mlsdk" else f"{module}.{name}"
    yield f"### `{shown}{signature(thing)}`\n"
    yield f"{text(thing)}\n"
    if entry.endswith("*"):
        for method, value in vars(thing).items():
            plain = value.__func__ if isinstance(value, staticmethod) else value
            if method == "__call__" or (not method.startswith("_") and callable(plain) and text(plain)):
                yield f"**`{method}{signature(plain)}`** {text(plain)}\n"


# Classes of which programs get objects, and make none.
GIVEN = ("CompiledFunction", "IOSpec", "Registry", "TensorProxy")


def signature(thing: Any) -> str:
    if getattr(thing, "__name__", "") in GIVEN:
        return ""
    if inspect.isclass(thing) and (thing.__init__ is object.__init__ or issubclass(thing, int)):
        return ""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    parameters = [one for one in parameters if one.name != "self"]
    return str(inspect.Signature(parameters))


def text(thing: Any) -> str:
    """A docstring as Markdown: one paragraph a line."""
    return re.sub(r"(?<!\n)\n(?!\n|    )", " ", inspect.cleandoc(thing.__doc__ or ""))


def errors() -> Iterator[str]:
    from mlsdk import errors as module

    for name in sorted({*module.__all__, *module._ELSEWHERE}):
        thing = getattr(module, name)
        if issubclass(thing, (Exception, Warning)):
            yield f"- `{name}` ({thing.__bases__[0].__name__}): {text(thing).splitlines()[0]}"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
