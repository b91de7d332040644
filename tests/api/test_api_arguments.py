"""Arguments of a compile, and the structure of a call's: what is wrong is named."""

from __future__ import annotations

import functools
import os
import traceback

import pytest
import torch

from mlsdk.errors import (
    CodegenDirError,
    DataDependentControlFlow,
    GraphError,
    InputMismatch,
    OptionError,
    TraceError,
    UnsupportedOperator,
)
from mlsdk.labels import label_of, short

x = torch.ones(3)
WEIGHT = torch.nn.Parameter(torch.ones(3))


def plus(inputs):
    return {"y": inputs["x"] + 1}


# --- keywords of compile ---

KEYWORDS = [
    ({"options": 5}, "options is int; give a mapping"),
    ({"cache_options": "dir"}, r"cache_options is str; give CacheOptions\(directory\)"),
    ({"export_kwargs": 5}, "export_kwargs is int; give a mapping"),
    ({"export_kwargs": {1: 2}}, "export_kwargs: there is no 1"),
    ({"optimizers": 5}, "optimizers is int; give a list of torch optimizers"),
    ({"optimizers": [3]}, "optimizers: number 0 is int"),
    ({"io_spec_constraints": 5}, "io_spec_constraints is int; give a mapping"),
    ({"io_spec_constraints": [1]}, "io_spec_constraints is list; give a mapping"),
    ({"io_spec_constraints": {"y": 1}}, "io_spec_constraints: y is int; give an IOSpec"),
    ({"num_compiler_threads": 0}, "num_compiler_threads is 0; give a whole number from 1"),
    ({"num_compiler_threads": -2}, "num_compiler_threads is -2"),
    ({"num_compiler_threads": True}, "num_compiler_threads is True"),
    ({"num_compiler_threads": "2"}, "num_compiler_threads is str"),
    ({"options": {"num_threads": 0}}, "option num_threads: 0 is not allowed"),
    ({"options": {"envs": {"A": object()}}}, "option envs: A is object; give text or a number"),
    ({"options": {"envs": {"A": None}}}, "option envs: A is NoneType"),
    ({"training": "x"}, "training is 'x'; give True or False"),
    ({"quiet": "a"}, "quiet is 'a'; give True or False"),
]


def test_keywords_of_the_wrong_kind(host, tmp_path):
    for keywords, message in KEYWORDS:
        with pytest.raises(OptionError, match=message):
            host.compile(plus, {"x": x}, tmp_path / "f", **keywords)
    assert host.compile(plus, {"x": x}, tmp_path / "f", num_compiler_threads=-1, quiet=True)({"x": x})


def test_an_optimizer_without_a_gradient(host, tmp_path):
    optimizer = torch.optim.SGD([WEIGHT], lr=0.1)
    with pytest.raises(
        TraceError, match=r"needs a loss that depends on a parameter with requires_grad.*\(y\) does not"
    ):
        host.compile(plus, {"x": x}, tmp_path / "f", optimizers=[optimizer])
    with pytest.raises(TraceError, match="returns a tensor; return a mapping"):
        host.compile(lambda inputs: plus(inputs)["y"], {"x": x}, tmp_path / "f", optimizers=[optimizer])


def test_arguments_that_contain_themselves(host, tmp_path):
    cyclic: list = [x]
    cyclic.append({"again": cyclic})
    with pytest.raises(GraphError, match="args.0.1.again is a list that contains itself"):
        host.compile_automap(lambda a: a[0] + 1, (cyclic,), {}, tmp_path / "f")
    with pytest.raises(InputMismatch, match="function is int; give something that can be called"):
        host.compile_automap(5, (x,), {}, tmp_path / "f")


# --- the structure of a call ---


def scaled(a, scale, nothing=None, options=None):
    return a * scale + options["more"][1]


def test_what_differs_between_call_and_compile(host, tmp_path):
    nan = float("nan")
    f = host.compile_automap(
        scaled, (x,), {"scale": 3.0, "nothing": nan, "options": {"a": 1, "more": [2, x]}}, tmp_path / "f"
    )
    usual = {"scale": 3.0, "nothing": nan, "options": {"more": [2, x], "a": 1}}
    assert f(x, **dict(reversed(usual.items()))).cpu().tolist() == [4, 4, 4]
    calls = [
        ((x,), {**usual, "scale": 4.0}, "kwargs.scale: compiled with 3.0, called with 4.0"),
        ((x,), {**usual, "scale": 3}, "kwargs.scale: compiled with 3.0, called with 3"),
        ((x,), {**usual, "scale": x}, "kwargs.scale: compiled with 3.0, called with a tensor"),
        ((x,), {**usual, "nothing": 1.0}, "kwargs.nothing: compiled with nan, called with 1.0"),
        ((x,), {"options": usual["options"]}, "kwargs.scale: compiled with 3.0, called without it"),
        ((x, x), usual, "args.1: compiled without it, called with a tensor"),
        ((), usual, "args.0: compiled with a tensor, called without it"),
        (([x],), usual, "args.0: compiled with a tensor, called with a list of 1"),
        ((x,), {**usual, "options": {"a": 1, "more": [2, 3]}}, "kwargs.options.more.1: compiled with a tensor"),
        ((x,), {**usual, "options": {"a": 1, "more": (2, x)}}, "compiled with a list of 2, called with a tuple of 2"),
    ]
    for args, kwargs, message in calls:
        with pytest.raises(InputMismatch, match=f"scaled is called with other arguments .*{message}"):
            f(*args, **kwargs)


# --- names of compiles ---


class Model(torch.nn.Module):
    def step(self, inputs):
        return plus(inputs)

    def __call__(self, inputs):
        return plus(inputs)


def test_labels():
    def inner(inputs):
        return plus(inputs)

    here = "test_api_arguments"
    assert label_of(plus) == f"{here}:plus"
    assert label_of(inner) == f"{here}:test_labels.inner"
    assert label_of(Model().step) == f"{here}:Model.step"
    assert label_of(Model()) == f"{here}:Model"
    assert label_of(functools.partial(plus)) == f"{here}:plus"
    one = lambda inputs: inputs  # noqa: E731
    two = lambda inputs: inputs  # noqa: E731
    assert label_of(one) != label_of(two)
    assert label_of(one) == f"{here}:lambda at {here}.py:{one.__code__.co_firstlineno}"
    assert [short(label_of(f)) for f in (plus, inner, Model().step)] == ["plus", "inner", "step"]
    assert short(label_of(one)) == f"lambda at {here}.py:{one.__code__.co_firstlineno}" and short("folder") == "folder"


def test_functions_of_one_name_are_two_labels(host, tmp_path):
    def plus(inputs):
        return {"y": inputs["x"] - 1}

    f = host.compile(plus, {"x": x}, tmp_path / "f")
    assert f.name == "plus" and host.load_codegen_dir(tmp_path / "f").name == "plus"
    text = (tmp_path / "f" / "manifest.json").read_text()
    assert "test_api_arguments:test_functions_of_one_name_are_two_labels.plus" in text


# --- codegen_dir ---


def test_reports_of_a_codegen_dir_may_go(any_context, tmp_path):
    any_context.compile(plus, {"x": x}, tmp_path / "f")
    for path in (tmp_path / "f").rglob("*"):
        if path.suffix in (".html", ".log", ".txt") or path.name in ("option.json", "exported.onnx"):
            path.unlink()
    assert any_context.load_codegen_dir(tmp_path / "f")({"x": x})["y"].cpu().tolist() == [2, 2, 2]
    for path in (tmp_path / "f").glob("model.*"):
        path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CodegenDirError, match=r"model\.(app\.zst|onnx) was changed or is damaged"):
        any_context.load_codegen_dir(tmp_path / "f")


# --- errors ---


def user(inputs):
    return helper(inputs["x"])


def helper(value):
    return {"y": value} if value.sum() > 0 else {"y": -value}


def test_a_traceback_holds_the_users_lines_only(host, tmp_path, monkeypatch):
    def frames():
        with pytest.raises(DataDependentControlFlow) as caught:
            host.compile(user, {"x": x}, tmp_path / "f")
        assert caught.value.__cause__ is None and (os.environ.get("MLSDK_DEBUG") or caught.value.__suppress_context__)
        return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]

    assert frames() == ["frames", "called", "user", "helper"]
    monkeypatch.setenv("MLSDK_DEBUG", "1")
    assert {"compile", "compile_function", "helper"} < set(frames())


def test_an_exception_of_the_function_itself_is_left_alone(host, tmp_path):
    def breaks(inputs):
        return {"y": inputs["z"]}

    with pytest.raises(KeyError, match="z"):
        host.compile(breaks, {"x": x}, tmp_path / "f")


def test_what_the_tracer_and_the_planner_refuse_is_told_at_once(context, tmp_path, monkeypatch):
    from mlsdk.pipeline.layout import rules

    known = rules.rule_of
    monkeypatch.setattr(rules, "rule_of", lambda node, planner: None if node.op == "Cos" else known(node, planner))

    def function(inputs):
        return {"u": torch.linalg.svd(inputs["x"][None])[0], "cos": torch.cos(inputs["x"])}

    with pytest.raises(UnsupportedOperator) as caught:
        context.compile(function, {"x": x}, tmp_path / "f")
    assert {misuse.what: misuse.source[:21] for misuse in caught.value.misuses} == {
        "aten::_linalg_svd": "test_api_arguments.py",
        "Cos": "test_api_arguments.py",
    }


@pytest.mark.parametrize("mode", ["auto", "default", "fast", "best", "full", "fake"])
def test_every_documented_effort_of_the_simulation(mode, context, tmp_path):
    f = context.compile(
        lambda i: {"y": i["x"] + 1},
        {"x": torch.zeros(2)},
        tmp_path / "f",
        options={"simulation_mode": mode},
        quiet=True,
    )
    assert f({"x": torch.ones(2)})["y"].cpu().tolist() == [2, 2]
