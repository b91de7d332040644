"""How far the schedulers are from the optimum, which a solver for constraints finds and proves on small graphs."""

import pytest
from training_graphs import BASE, traffic, training

from mlsdk.pipeline.schedule import Record, ScheduleOptions
from mlsdk.pipeline.schedule.auto_recompute_sa import auto_recompute_sa
from mlsdk.pipeline.schedule.residence import in_dram
from mlsdk.pipeline.schedule.reuse_consecutive import reuse_consecutive
from mlsdk.pipeline.schedule.spill_opt import spill_opt


def optimum(problem):
    """The least traffic over all orders and all choices of which reads are in LM, by CP-SAT."""
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    model, n = cp_model.CpModel(), len(problem.turns)
    at = [model.new_int_var(0, n - 1, f"at{t}") for t in range(n)]
    model.add_all_different(at)
    for t, turn in enumerate(problem.turns):
        for before in turn.after:
            model.add(at[before] < at[t])
    intervals, demands, cost = [], [], []
    for i, item in enumerate(problem.items):
        hits = []
        end = model.new_int_var(0, n - 1, f"end{i}")
        for t, k in problem.readers[i]:
            hit = model.new_bool_var(f"hit{i}.{t}.{k}")
            model.add(end >= at[t]).only_enforce_if(hit)
            hits.append(hit)
            cost.append(item.grains * (1 - hit))
        stored = model.new_bool_var(f"stored{i}")
        if item.wanted or not hits:
            model.add(stored == 1)
        for hit in hits:
            model.add(stored >= 1 - hit)
        cost.append(item.grains * stored)
        length, active = model.new_int_var(0, n, f"length{i}"), model.new_bool_var(f"active{i}")
        for hit in hits:
            model.add(active >= hit)
        start = at[problem.maker[i][0]]
        after = model.new_int_var(0, n, f"after{i}")
        model.add(after == end + 1)
        intervals.append(model.new_optional_interval_var(start, length, after, active, f"stay{i}"))
        demands.append(item.grains)
    model.add_cumulative(intervals, demands, problem.capacity)
    model.minimize(sum(cost))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 2, 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value


@pytest.mark.parametrize(("seed", "forward"), [(s, f) for f in (5, 7, 8, 10) for s in range(3)])
def test_annealing_is_close_to_the_optimum(seed, forward):
    problem = training(seed, forward)
    assert len(problem.turns) <= 20
    best = optimum(problem)
    found = auto_recompute_sa(problem, ScheduleOptions(sa_steps=4000), Record())
    assert best <= traffic(problem, found) + 1e-6 or len(found.order) > len(problem.turns)
    assert traffic(problem, found) <= 1.05 * best


@pytest.mark.parametrize("seed", range(6))
def test_each_scheduler_is_no_worse_than_the_simpler_one(seed):
    problem, options = training(seed, 14), ScheduleOptions(sa_steps=300)
    dram, reuse, spill, sa = (
        in_dram(problem),
        reuse_consecutive(problem, options, Record()),
        spill_opt(problem, options, Record()),
        auto_recompute_sa(problem, options, Record()),
    )
    assert dram.cost > reuse.cost > spill.cost >= sa.cost
    assert dram.cost == BASE * len(problem.turns) + sum(
        item.grains * (1 + len(readers)) for item, readers in zip(problem.items, problem.readers)
    )


def test_what_the_search_records():
    record = Record()
    found = auto_recompute_sa(training(1, 8), ScheduleOptions(sa_steps=200), record)
    order, annealing = record.runs
    assert (order.method, annealing.method) == ("beam search, Belady", "annealing")
    bests = [best for _, _, best in annealing.points]
    assert bests == sorted(bests, reverse=True)
    assert annealing.points[-1][2] == pytest.approx(found.cost, abs=0.01)
    assert annealing.points[0][2] == order.points[-1][2]
    assert annealing.facts["rounds"] == 200
