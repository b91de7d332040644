"""The environment variables of a compile: one row each, with the phases whose output it can change.

A variable that is set already wins over the same one in `options["envs"]`, and that over one in an option_json. What is
set for a compile is set while its phases run, and not afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PREFIX = "CODEGEN_"

_OPTIMIZE = ("OptimizeOnnx",)
_LAYOUT = ("LayoutPlan",)
_SCHEDULE = ("Schedule",)
_SEARCH = ("LayoutPlan", "Schedule")
_MERGE = ("Schedule", "Simulate", "Emit")
_NONE: tuple[str, ...] = ()  # threads, dumps, folders: they change no result

VARIABLES: dict[str, tuple[str, ...]] = {
    "CODEGEN_ALARM": _SEARCH,
    "CODEGEN_ALLOW_UNUSED_LAYOUT_SPEC": _LAYOUT,
    "CODEGEN_AUTO_RECOMPUTE_HACK_FOR_QWEN": _SCHEDULE,
    "CODEGEN_CONV_AGGRESSIVE_TIME_SLICING": _LAYOUT,
    "CODEGEN_DEFER_SIMPLIFY": _OPTIMIZE,
    "CODEGEN_DIR": _NONE,
    "CODEGEN_DUMP_VSM": _NONE,
    "CODEGEN_ENABLE_SET_PARTIAL_LOCATION": _LAYOUT,
    "CODEGEN_FIND_BEST_COMPILE_OPTIONS": _SEARCH,
    "CODEGEN_FIND_BETTER_COMPILE_OPTIONS": _SEARCH,
    "CODEGEN_FORCE_ATTENTION_GRAD_AFTER_FORWARD": _SCHEDULE,
    "CODEGEN_GEMM_FORCE_CHANNEL_SPLIT": _LAYOUT,
    "CODEGEN_GEMM_FORCE_WEIGHT_ON_DRAM": _SEARCH,
    "CODEGEN_GENERIC_MOVE_CHUNK_SIZE": _LAYOUT,
    "CODEGEN_GN_AGGRESSIVE_TIME_SLICING": _LAYOUT,
    "CODEGEN_IGNORE_LAYOUT_CHECK": _LAYOUT,
    "CODEGEN_IGNORE_REUSED_VALUE_LAYOUT": _LAYOUT,
    "CODEGEN_LAYOUT_PLANNER_Z": _LAYOUT,
    "CODEGEN_LAYOUT_PLANNER_Z_HONOR_LAYOUT_SPEC": _LAYOUT,
    "CODEGEN_LPZ_SKIP_PROPAGATE_TIME": _LAYOUT,
    "CODEGEN_MAX_TIME_SLICE": _LAYOUT,
    "CODEGEN_NODE_SIM_ALLOW_UNEXPECTED_FAIL": _SEARCH,
    "CODEGEN_NUM_SA_THREADS": _SCHEDULE,
    "CODEGEN_N_DEV_COPY_STREAMS_THREADS": _NONE,
    "CODEGEN_N_TRANSPOSE_THREADS": _NONE,
    "CODEGEN_OPS_ON_HOST": _LAYOUT,
    "CODEGEN_OP_DEF": _LAYOUT,
    "CODEGEN_SA_STEPS": _SCHEDULE,
    "CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN": _SCHEDULE,
    "CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT": _SCHEDULE,
    "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": _SCHEDULE,
    "CODEGEN_SKIP_OPTIMIZER_FUSION": _OPTIMIZE,
    "CODEGEN_SKIP_RESOLVE_NEGATIVE_INDICES": _OPTIMIZE,
    "CODEGEN_SPATIAL_SPLIT_THRESHOLD_L2B_L1B": _LAYOUT,
    "CODEGEN_STOP_USING_GENERIC_INDEXING_GATHER_INDEX_ADD": _LAYOUT,
    "CODEGEN_TIME_SLICE_SCATTERED_INDEXING_BCAST": _LAYOUT,
    "CODEGEN_USE_ADDR_FIRST_Z": _SEARCH,
    "CODEGEN_USE_MERGE": _MERGE,
    "CODEGEN_USE_PARALLEL_MERGE": _MERGE,
}


def of_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a compile that the process has set."""
    where = os.environ if environment is None else environment
    return {name: value for name, value in sorted(where.items()) if name.startswith(PREFIX)}


def of_phase(values: Mapping[str, str], phase: str) -> dict[str, str]:
    """Those that enter a phase's key. What nobody knows enters every key: it may change anything."""
    return {name: value for name, value in values.items() if phase in VARIABLES.get(name, (phase,))}


@contextmanager
def applied(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables while a phase runs; those that are set already stay as they are."""
    fresh = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(fresh)
    try:
        yield
    finally:
        for name in fresh:
            os.environ.pop(name, None)
