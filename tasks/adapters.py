"""The phases as functions on bytes: what Luigi and the store see of them.

    function(inputs: name -> bytes, options: name -> value, services) -> name -> bytes

Each imports its phase when it is called, so that a cached build imports none. A phase knows nothing of this file: it
takes and gives the values of `pipeline/ir`, and this file turns those into bytes and back.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mlsdk.errors import OptionError
from mlsdk.tasks import variables
from mlsdk.tasks.near import nearest
from mlsdk.tasks.patience import patience

if TYPE_CHECKING:
    from mlsdk.pipeline.ops.simulation import Helpers
    from mlsdk.tasks.session import Services
    from mlsdk.tasks.traced import Program

#: of what is kept of a simulated node
FORM = 2

Inputs = Mapping[str, bytes]
Options = Mapping[str, Any]
Outputs = Mapping[str, bytes]


def trace(program: Program, options: Options, services: Services) -> Outputs:
    """Python function -> exported ONNX and signature. The one adapter that starts from a function."""
    from mlsdk.errors import UnregisteredTensorWarning
    from mlsdk.pipeline.trace import trace as traced

    with warnings.catch_warnings():
        if not program.keywords.get("state"):  # nothing is registered: that all weights are constants is meant
            warnings.simplefilter("ignore", UnregisteredTensorWarning)
        result = traced(program.function, program.sample, **program.keywords)
    return traced_artifacts(result, program.keywords.get("state"))


def traced_artifacts(traced: Any, state: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """What the tracer gives, as artifacts; Context.compile publishes the same.

    `state`: registered name -> torch tensor, whose present values travel with the application.
    """
    from mlsdk.pipeline.ir import archive
    from mlsdk.pipeline.ir.graph import sources

    artifacts = {
        "exported.onnx": traced.graph.to_onnx(),
        "signature.json": traced.signature.to_json().encode(),
        "sources.json": (json.dumps(sources(traced.graph), indent=1, sort_keys=True) + "\n").encode(),
    }
    names = [entry.name for entry in traced.signature.state if state and entry.name in state]
    if names and state:
        artifacts["state.npz"] = archive.pack_arrays({name: _array(state[name]) for name in names})
    return artifacts


def _array(tensor: Any) -> Any:
    """A torch tensor's values as numpy has them: bfloat16 and float16 as float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4 else tensor).cpu().numpy()


def optimize_onnx(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.ir.graph import Graph
    from mlsdk.pipeline.optimize import optimize

    return {"model.onnx": optimize(Graph.from_onnx(inputs["exported.onnx"])).to_onnx()}


def layout_plan(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.ir.graph import Graph
    from mlsdk.pipeline.layout import LayoutOptions, fixed_from_json, pins_of, plan, reports
    from mlsdk.pipeline.simulate import measure

    fixed = fixed_from_json(inputs["placements.json"]) if "placements.json" in inputs else {}
    told = LayoutOptions(
        options["float_dtype"],
        fixed,
        _ops_on_host(options["envs"]),
        pins_of(
            options["layout_spec"] or (),
            options["gemm_layout_spec"] or (),
            variables.is_set(options["envs"], "CODEGEN_ALLOW_UNUSED_LAYOUT_SPEC"),
        ),
        planner=options["layout_planner"],
        measure=measure,
        trials=_trials(options),
        fed=_fed(inputs),
        implementations=_implementations(options["envs"]),
        most_slices=variables.whole_number(options["envs"], "CODEGEN_MAX_TIME_SLICE", 0, 1) or None,
    )
    with simulations(services) as (known, helpers), patience(options["envs"], services) as watch:
        wanted = replace(told, known=known, helpers=helpers, watch=watch, judge=_judge(options, known, helpers))
        placed, history = plan(Graph.from_onnx(inputs["model.onnx"]), wanted)
    return {
        "placed.json": placed.to_json(),
        "layout.html": reports.layout_page(placed),
        "layout_plan_history.html": reports.history_page(history),
        "time_slice.html": reports.time_slice_page(placed),
        "time_slice.txt": reports.time_slice_text(placed),
    }


@contextmanager
def simulations(services: Services | None) -> Iterator[tuple[Simulations | None, Helpers | None]]:
    """What a phase has for node simulations: costs that are kept, and processes that count beside this one."""
    from mlsdk.pipeline.simulate.helpers import Processes

    if services is None:
        yield None, None
        return
    known = Simulations(services)
    with known.memory, Processes(services.processes, services.status) as helpers:
        yield known, helpers


class Simulations:
    """Costs of nodes that a compile has counted, for later ones; of another version of the emitters, none."""

    def __init__(self, services: Services) -> None:
        from mlsdk.tasks.phases import PHASES, code_digest

        self.memory = services.memory("node_simulation")
        phases = [PHASES[name] for name in ("LayoutPlan", "Simulate", "Emit")]
        paths = tuple(sorted({path for phase in phases for path in phase.code}))
        versions = [FORM, *(phase.version for phase in phases)]
        self.version = {"versions": versions, **code_digest(paths)}

    def recall_many(self, keys: Sequence[Any]) -> list[Any | None]:
        return self.memory.recall_many([{**key, **self.version} for key in keys])

    def remember(self, key: Any, value: Any) -> None:
        self.memory.remember({**key, **self.version}, value)


def _judge(options: Options, known: Any, helpers: Any) -> Callable[[Any], int] | None:
    """The steps of a plan with the quickest schedule that a preset asks for, if the scheduler is one that searches."""
    from mlsdk.pipeline.ops.link import count
    from mlsdk.pipeline.schedule import LADDER, ScheduleOptions
    from mlsdk.pipeline.schedule import schedule as scheduled
    from mlsdk.pipeline.simulate import measure

    if options["scheduler"] != "spill_opt":
        return None
    quick = ScheduleOptions("spill_opt", measure, merge=True, known=known, helpers=helpers)
    quick = replace(quick, **LADDER[0])
    return lambda placed: count(placed, scheduled(placed, quick), measure)


def _fed(inputs: Inputs) -> frozenset[str]:
    """The graph inputs that come with each call, if it is told what the graph's inputs are."""
    from mlsdk.pipeline.ir.signature import Signature

    if "signature.json" not in inputs:
        return frozenset()
    return frozenset(each.value for each in Signature.from_json(inputs["signature.json"].decode()).inputs)


def _trials(options: Options) -> int:
    """How many layouts the planner tries: as simulation_mode says, or more where the environment asks for the best."""
    from mlsdk.pipeline.layout import TRIALS

    asked = {"CODEGEN_FIND_BETTER_COMPILE_OPTIONS": "best", "CODEGEN_FIND_BEST_COMPILE_OPTIONS": "full"}
    modes = [mode for name, mode in asked.items() if variables.is_set(options["envs"], name)]
    return max(TRIALS[mode] for mode in [options["simulation_mode"], *modes])


def _implementations(envs: Mapping[str, str]) -> dict[str, str]:
    """The implementations of operators that CODEGEN_OP_DEF names: `MatMul=Columns`, with commas between them."""
    from mlsdk.pipeline.layout import IMPLEMENTATIONS
    from mlsdk.pipeline.ops.table import table

    found = {}
    for text in variables.listed(envs, "CODEGEN_OP_DEF"):
        op, _equals, name = (part.strip() for part in text.partition("="))
        known = IMPLEMENTATIONS.get(op, ())
        if name in known:
            found[op] = name
        else:
            wanted = (
                f"{op} has one implementation; leave it out"
                if op in table() and not known
                else f"give one of {', '.join(f'{op}={one}' for one in known)}{nearest(name, known)}"
                if known
                else f"there is no operator {op!r}{nearest(op, IMPLEMENTATIONS)}; write MatMul=Columns"
            )
            raise OptionError(f"CODEGEN_OP_DEF: {text!r:.60}: {wanted}")
    return found


def _ops_on_host(envs: Mapping[str, str]) -> frozenset[str]:
    """The operators that CODEGEN_OPS_ON_HOST names, with commas between them."""
    from mlsdk.pipeline.ops.table import table

    names = frozenset(variables.listed(envs, "CODEGEN_OPS_ON_HOST"))
    for name in sorted(names):
        if name not in table():
            raise OptionError(f"CODEGEN_OPS_ON_HOST: there is no operator {name!r}{nearest(name, table())}")
    return names


def schedule(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.ir.placed import Placed
    from mlsdk.pipeline.schedule import Record, ScheduleOptions, reports
    from mlsdk.pipeline.schedule import schedule as scheduled
    from mlsdk.pipeline.simulate import measure

    placed, record, usual = Placed.from_json(inputs["placed.json"]), Record(), ScheduleOptions()
    number = partial(variables.whole_number, options["envs"])
    wishes = ScheduleOptions(
        options["scheduler"],
        measure,
        options["sram_budget"],
        number("CODEGEN_SCHEDULE_PP_BEAM_WIDTH", usual.beam_width, 1),
        number("CODEGEN_SCHEDULE_PP_BEAM_MAX_TURN", usual.beam_max_turn, -1),
        number("CODEGEN_SCHEDULE_PP_BEAM_TURN_PRUNE_LIMIT", usual.beam_prune_limit, 1),
        number("CODEGEN_SA_STEPS", options["sa_expected_run_iters"], 0),
        number("CODEGEN_NUM_SA_THREADS", usual.sa_chains, 1),
        any(variables.is_set(options["envs"], f"CODEGEN_USE_{kind}MERGE") for kind in ("", "PARALLEL_")),
    )
    with simulations(services) as (known, helpers), patience(options["envs"], services) as watch:
        plan = scheduled(placed, replace(wishes, known=known, helpers=helpers, watch=watch), record)
    return {
        "plan.json": plan.to_json(),
        "l3ir.txt": reports.l3ir_text(placed, plan),
        "l3ir_stripped.onnx": reports.l3ir_onnx(placed),
        **({"search.json": record.to_json()} if record.runs else {}),
    }


def simulate(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.ir.placed import Placed
    from mlsdk.pipeline.ir.plan import Plan
    from mlsdk.pipeline.simulate import reports
    from mlsdk.pipeline.simulate import simulate as simulated

    timeline = simulated(Placed.from_json(inputs["placed.json"]), Plan.from_json(inputs["plan.json"]))
    return {
        "simulation_result.json": timeline.to_json(),
        "profile.json": reports.profile(timeline),
        "trace.json": reports.trace(timeline),
        "report.json": reports.report(timeline),
    }


def emit(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.emit import emit as emitted
    from mlsdk.pipeline.ir import archive
    from mlsdk.pipeline.ir.placed import Placed
    from mlsdk.pipeline.ir.plan import Plan

    program, tables = emitted(Placed.from_json(inputs["placed.json"]), Plan.from_json(inputs["plan.json"]))
    return {
        "model.vsm.zst": archive.compress(program.vsm().encode()),
        "program.json.zst": archive.compress(program.to_json()),
        "tables.npz": archive.pack_arrays(tables),
    }


def load(inputs: Inputs, options: Options, services: Services) -> Outputs:
    from mlsdk.pipeline.ir import archive
    from mlsdk.pipeline.ir.graph import Graph
    from mlsdk.pipeline.ir.placed import Placed
    from mlsdk.pipeline.ir.plan import Plan
    from mlsdk.pipeline.ir.program import Program as Instructions
    from mlsdk.pipeline.ir.signature import Signature
    from mlsdk.pipeline.load import pack

    state = archive.unpack_arrays(inputs["state.npz"]) if "state.npz" in inputs else {}
    application = pack(
        Graph.from_onnx(inputs["model.onnx"]),
        Signature.from_json(inputs["signature.json"].decode()),
        Placed.from_json(inputs["placed.json"]),
        Plan.from_json(inputs["plan.json"]),
        Instructions.from_json(archive.decompress(inputs["program.json.zst"])),
        archive.unpack_arrays(inputs["tables.npz"]),
        state,
    )
    return {"model.app.zst": archive.compress(application.to_bytes())}


def run(inputs: Inputs, options: Options, services: Services) -> Outputs:
    """Each array of inputs.npz has a leading axis: one run for each of its rows. Outputs are stacked the same way."""
    from mlsdk.pipeline.ir import archive
    from mlsdk.runtime import batch

    rows = archive.unpack_arrays(inputs["inputs.npz"])
    if "model.app.zst" in inputs:
        from mlsdk.pipeline.ir.application import Application
        from mlsdk.pipeline.ops.table import run as run_operator

        application = Application.from_bytes(archive.decompress(inputs["model.app.zst"]))
        outputs, record = batch.run_rows(application, rows, options["device"], services.status, run_operator)
    else:
        from mlsdk.pipeline.ir.graph import Graph
        from mlsdk.pipeline.ir.signature import Signature
        from mlsdk.pipeline.ops.interpreter import run_reference

        graph, signature = Graph.from_onnx(inputs["model.onnx"]), Signature.from_json(inputs["signature.json"].decode())
        state = archive.unpack_arrays(inputs["state.npz"]) if "state.npz" in inputs else {}
        outputs, record = batch.run_rows_on_host(
            partial(run_reference, graph), signature, state, rows, options["device"], services.status
        )
    return {"outputs.npz": archive.pack_arrays(outputs), "run.json": record}
