"""The schedulers by name, and what they decide as a Plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from mlsdk.errors import ScheduleError
from mlsdk.pipeline.ir.placed import VIEW, Placed
from mlsdk.pipeline.ir.plan import Home, Plan, Step
from mlsdk.pipeline.ops.emitters.home import GRAIN, LM
from mlsdk.pipeline.ops.link import count, with_overlap
from mlsdk.pipeline.ops.overlap import REACHES
from mlsdk.pipeline.ops.simulation import Simulation
from mlsdk.pipeline.schedule.addresses import CHIP, DRAM, HALVES, assign
from mlsdk.pipeline.schedule.always_from_dram import always_from_dram
from mlsdk.pipeline.schedule.auto_recompute_sa import auto_recompute_sa
from mlsdk.pipeline.schedule.beam import depth_first
from mlsdk.pipeline.schedule.ladder import quicker
from mlsdk.pipeline.schedule.options import ScheduleOptions
from mlsdk.pipeline.schedule.problem import Problem, bases, problem_of
from mlsdk.pipeline.schedule.residence import Genes, Schedule, evaluate, in_dram
from mlsdk.pipeline.schedule.reuse_consecutive import reuse_consecutive
from mlsdk.pipeline.schedule.search import Record
from mlsdk.pipeline.schedule.spill_opt import spill_opt
from mlsdk.pipeline.schedule.urgent import urgent

Scheduler = Callable[[Problem, ScheduleOptions, Record], Schedule]

#: each in a file of its own, which says how it works
SCHEDULERS: dict[str, Scheduler] = {
    "always_from_dram": always_from_dram,
    "reuse_consecutive": reuse_consecutive,
    "spill_opt": spill_opt,
    "auto_recompute_sa": auto_recompute_sa,
}


#: those that search, and find the more the more they try
SEARCHES = {"spill_opt", "auto_recompute_sa"}


def schedule(placed: Placed, options: ScheduleOptions | None = None, record: Record | None = None) -> Plan:
    """The order of the nodes, and the places of the values. ScheduleError where there is no such scheduler, or no room."""
    options = options or ScheduleOptions()
    found = SCHEDULERS.get(options.scheduler)
    if found is None:
        raise ScheduleError(f"there is no scheduler {options.scheduler}; choose one of {', '.join(SCHEDULERS)}")
    if found is always_from_dram and options.sram_budget >= 1:  # nothing has to be measured
        steps = tuple(Step(p.node.name) for p in placed.nodes)
    elif options.measure is None:
        raise ScheduleError(f"the scheduler {options.scheduler} compares costs; give ScheduleOptions a `measure`")
    else:
        simulation = Simulation(options.measure, options.known, options.helpers)
        problem = problem_of(placed, simulation, options.sram_budget)
        if found is not always_from_dram:
            problem.learn_gains()
        tried = [found(problem, options, record or Record())]
        if options.scheduler in SEARCHES:
            tried += [found(problem, one, Record()) for one in quicker(options)]
            orders = [
                tuple(range(len(problem.turns))),
                depth_first(problem),
                *([urgent(problem)] if options.merge else []),
            ]
            tried += [evaluate(problem, Genes(order)) for order in orders]
        tried.append(in_dram(problem))
        return _best(placed, problem, tried, options)
    return _plan(placed, steps, options)


def _plan(placed: Placed, steps: tuple[Step, ...], options: ScheduleOptions) -> Plan:
    """With the values where they give the fewest steps: whole in PDM, or half in DRAM."""
    if SCHEDULERS[options.scheduler] is always_from_dram:
        wanted = [DRAM]
    else:
        wanted = [CHIP, HALVES]
    plans = [Plan(options.scheduler, steps, *assign(placed, steps, where)) for where in wanted]
    measure = options.measure
    if measure is not None and plans[0] != plans[-1]:
        plans.sort(key=lambda plan: count(placed, plan, measure))
    return replace(plans[0], merged=REACHES[0] if options.merge else 0)


#: of the steps of the best schedule, how many more another may take to be looked at with its nodes overlapping
NEAR = 1.1


def _best(placed: Placed, problem: Problem, tried: Sequence[Schedule], options: ScheduleOptions) -> Plan:
    """The plan of the schedule of the fewest steps, the first of equal ones; of those with overlap where nodes overlap."""
    least = min(s.steps for s in tried)
    if not options.merge:
        best = next(s for s in tried if s.steps == least)
        return _plan(placed, steps_of(placed, problem, best), options)
    near = dict.fromkeys(steps_of(placed, problem, s) for s in tried if s.steps <= NEAR * least)
    limit, chosen = inf, None
    for steps in near:
        found, plan = with_overlap(placed, _plan(placed, steps, options), limit)
        if found < limit:
            limit, chosen = found, plan
    assert chosen is not None  # the first takes fewer than infinitely many
    return chosen


def steps_of(placed: Placed, problem: Problem, schedule: Schedule) -> tuple[Step, ...]:
    """The turns of a schedule as steps; a view comes right behind what it is a view of."""
    base = bases(placed)
    views: dict[str, list[str]] = {}
    for p in placed.nodes:
        if p.emitter == VIEW:
            views.setdefault(base[p.node.outputs[0]], []).append(p.node.name)
    made = {problem.items[i].name for turn in problem.turns if not turn.loads for i in turn.makes}
    steps = [Step(name) for source, names in views.items() if source not in made for name in names]
    reads: dict[int, list[tuple[int, Home]]] = {}
    keeps: dict[int, list[tuple[int, Home]]] = {}
    for s in schedule.stays:
        home = Home(LM[s.bank], 2 * GRAIN * s.address)
        keeps.setdefault(s.made, []).append((s.result, home))
        for position, operand in s.hits:
            reads.setdefault(position, []).append((operand, home))
    seen: set[int] = set()
    for position, turn in enumerate(schedule.order):
        loads = problem.turns[turn].loads
        if loads and position not in keeps:
            continue  # nobody reads in LM what it would bring there
        stored = schedule.lives[position].stored
        only = tuple(o for o, s in enumerate(stored) if loads or not s)
        note = _note(problem, turn, position, schedule, turn in seen)
        mine = tuple(sorted(reads.get(position, ()))), tuple(sorted(keeps.get(position, ())))
        steps.append(Step(problem.turns[turn].name, note, *mine, only))
        if turn not in seen and not loads:
            steps += [
                Step(name) for item in problem.turns[turn].makes for name in views.get(problem.items[item].name, ())
            ]
        seen.add(turn)
    return tuple(steps)


def _note(problem: Problem, turn: int, position: int, schedule: Schedule, again: bool) -> str:
    """What a person wants to know of a turn."""
    found = ["computed again"] if again else []
    for s in schedule.stays:
        if s.made == position:
            only = s.result in [o for o, stored in enumerate(schedule.lives[position].stored) if not stored]
            where = "stays in" if only else "goes to DRAM and stays in"
            found.append(f"{problem.items[s.item].name} {where} {LM[s.bank]} for {len(s.hits)} reads")
    return "; ".join(found)
