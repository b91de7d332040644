"""The environment variables of a compile: one row each, with the phases whose output it can change, and what it does.

A variable that is set already wins over the same one in `options["envs"]`, and that over one in an option_json. What is
set for a compile is set while its phases run, and not afterwards.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mlsdk.errors import OptionError

PREFIX = "CODEGEN_"


@dataclass(frozen=True)
class Variable:
    """`effect`: what it does here. `why`: why it does nothing; it is known so that programs of the official MLSDK run
    unchanged."""

    phases: tuple[str, ...] = ()
    effect: str = ""
    why: str = ""


_LAYOUT = ("LayoutPlan",)
_SCHEDULE = ("Schedule",)
_SEARCH = ("LayoutPlan", "Schedule")
_TILES = "every emitter cuts what exceeds LM into the largest tiles that fit, and needs no leave for it"
_EXACT = "there is one rule for all graphs, and no model needs a switch of its own"

VARIABLES: dict[str, Variable] = {
    "CODEGEN_ALARM": Variable(
        _SEARCH, "seconds after which the search of a phase ends, and the best so far is taken; 0: never"
    ),
    "CODEGEN_ALLOW_UNUSED_LAYOUT_SPEC": Variable(
        _LAYOUT, "1: entries of layout_spec and gemm_layout_spec that nothing fits are no error"
    ),
    "CODEGEN_AUTO_RECOMPUTE_HACK_FOR_QWEN": Variable(why=_EXACT),
    "CODEGEN_CONV_AGGRESSIVE_TIME_SLICING": Variable(why=_TILES),
    "CODEGEN_DEFER_SIMPLIFY": Variable(why="no rewrite has to wait for another"),
    "CODEGEN_DIR": Variable(why="a variable of example scripts; the folder is an argument of compile"),
    "CODEGEN_DUMP_VSM": Variable(why="the instructions stand in model.vsm.zst of every codegen_dir"),
    "CODEGEN_ENABLE_SET_PARTIAL_LOCATION": Variable(why="each use of a value has a place of its own anyway"),
    "CODEGEN_FIND_BEST_COMPILE_OPTIONS": Variable(_LAYOUT, "1: lpz tries as many layouts as with simulation_mode=full"),
    "CODEGEN_FIND_BETTER_COMPILE_OPTIONS": Variable(
        _LAYOUT, "1: lpz tries as many layouts as with simulation_mode=best"
    ),
    "CODEGEN_FORCE_ATTENTION_GRAD_AFTER_FORWARD": Variable(why="the order is searched by exact costs, gradients included"),
    "CODEGEN_GEMM_FORCE_CHANNEL_SPLIT": Variable(why="CODEGEN_OP_DEF=MatMul=Columns shares columns out"),
    "CODEGEN_GEMM_FORCE_WEIGHT_ON_DRAM": Variable(why="it is always so: products read their weights in DRAM"),
    "CODEGEN_GENERIC_MOVE_CHUNK_SIZE": Variable(why=_TILES),
    "CODEGEN_GN_AGGRESSIVE_TIME_SLICING": Variable(why=_TILES),
    "CODEGEN_IGNORE_LAYOUT_CHECK": Variable(why="a layout that does not hold its value is always refused"),
    "CODEGEN_IGNORE_REUSED_VALUE_LAYOUT": Variable(why="a value that is wanted in two layouts is stored or switched for each"),
    "CODEGEN_LAYOUT_PLANNER_Z": Variable(why="layout_planner=lpz is the default"),
    "CODEGEN_LAYOUT_PLANNER_Z_HONOR_LAYOUT_SPEC": Variable(why="it is always so: every planner keeps to layout_spec"),
    "CODEGEN_LPZ_SKIP_PROPAGATE_TIME": Variable(why="layouts have no digit of time that could be propagated"),
    "CODEGEN_MAX_TIME_SLICE": Variable(
        _LAYOUT, "the most time slices (of 2,048 long words of LM) that a value may have; a plan with more is refused"
    ),
    "CODEGEN_NODE_SIM_ALLOW_UNEXPECTED_FAIL": Variable(why="it is always so: what an emitter refuses is no candidate"),
    "CODEGEN_NUM_SA_THREADS": Variable(
        _SCHEDULE,
        "how many annealings auto_recompute_sa makes, each with random numbers of its own, side by side on processors that are "
        "idle (or `num_threads`); the best is taken",
    ),
    "CODEGEN_N_DEV_COPY_STREAMS_THREADS": Variable(why="transfers to an emulated board are copies in memory"),
    "CODEGEN_N_TRANSPOSE_THREADS": Variable(why="numpy lays arrays out, in threads of its own"),
    "CODEGEN_OPS_ON_HOST": Variable(_LAYOUT, "operators that the host computes, by name with commas between them"),
    "CODEGEN_OP_DEF": Variable(
        _LAYOUT, "the implementation of an operator, `MatMul=Columns,Gemm=Rows`: what is shared out over the L2Bs"
    ),
    "CODEGEN_SA_STEPS": Variable(
        _SCHEDULE, "rounds of annealing of auto_recompute_sa, in place of sa_expected_run_iters"
    ),
    "CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN": Variable(_SCHEDULE, "turns of the search for an order; -1: no limit"),
    "CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT": Variable(
        _SCHEDULE, "turns without a better order after which that search ends"
    ),
    "CODEGEN_SCHEDULE_PP_BEAM_WIDTH": Variable(_SCHEDULE, "orders that go on in each turn of that search"),
    "CODEGEN_SKIP_OPTIMIZER_FUSION": Variable(why="an optimizer's step is fused where that takes fewer steps"),
    "CODEGEN_SKIP_RESOLVE_NEGATIVE_INDICES": Variable(why="negative indices are right, and cost one instruction"),
    "CODEGEN_SPATIAL_SPLIT_THRESHOLD_L2B_L1B": Variable(why="how images are shared out is chosen by exact steps"),
    "CODEGEN_STOP_USING_GENERIC_INDEXING_GATHER_INDEX_ADD": Variable(why=_EXACT),
    "CODEGEN_TIME_SLICE_SCATTERED_INDEXING_BCAST": Variable(why=_TILES),
    "CODEGEN_USE_ADDR_FIRST_Z": Variable(why="addresses are always found last, and a value that finds none is not kept"),
    "CODEGEN_USE_MERGE": Variable(_SCHEDULE, "1: moves of nodes overlap (L1Merge)"),
    "CODEGEN_USE_PARALLEL_MERGE": Variable(_SCHEDULE, "the same as CODEGEN_USE_MERGE"),
}  # fmt: skip


_ROWS = "rows of a table are gathered and added up in one way"

#: values of the official MLSDK that have no effect here, by variable, and why
VALUES: dict[str, dict[str, str]] = {
    "CODEGEN_OP_DEF": {"Gather=GatherBcast": _ROWS, "ChainerIndexAdd=IndexAddBcast": _ROWS},
    "CODEGEN_OPS_ON_HOST": {
        "ChainerAdamW": "an optimizer's step is made of smaller operators, which can be named, and stays on the board"
    },
}


def listed(values: Mapping[str, str], name: str) -> list[str]:
    """The items of a variable that holds a list, with commas between them; without those of VALUES."""
    return [item for item in _items(values.get(name, "")) if item not in VALUES.get(name, ())]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def notices(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of what has no effect: the variable, and what is to be said of it."""
    for name, text in values.items():
        row = VARIABLES.get(name)
        if row is None and name.startswith(PREFIX):
            yield name, f"{name} is not known here, and has no effect"
        elif row is not None and row.why:
            yield name, f"{name} has no effect here: {row.why}"
        for item, why in VALUES.get(name, {}).items():
            if item in _items(text):
                yield name, f"{name}={item} has no effect here: {why}"


def meant(name: str) -> str | None:
    """The variable that a misspelt one was to be; None where it is spelt well, or like none of them."""
    if name in VARIABLES or not name.upper().startswith(PREFIX):
        return None
    known = {each.removeprefix(PREFIX): each for each in VARIABLES}
    close = difflib.get_close_matches(name.upper().removeprefix(PREFIX), known, n=1, cutoff=0.8)
    return known[close[0]] if close else None


def of_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a compile that the process has set."""
    where = os.environ if environment is None else environment
    return {name: value for name, value in sorted(where.items()) if name.startswith(PREFIX)}


def of_phase(values: Mapping[str, str], phase: str) -> dict[str, str]:
    """Those that enter a phase's key. What is none of a compile enters every key: a plugin may read it."""

    def counts(name: str) -> bool:
        return phase in VARIABLES[name].phases if name in VARIABLES else not name.startswith(PREFIX)

    return {name: value for name, value in values.items() if counts(name)}


def whole_number(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    """A variable as a whole number. OptionError where it is none, or less than `least`."""
    text = values.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise OptionError(f"{name} is {text!r:.40}; give a whole number from {least}")
    return number


def is_set(values: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on: anything but nothing, 0 and false."""
    return values.get(name, "").strip().lower() not in ("", "0", "false")


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
