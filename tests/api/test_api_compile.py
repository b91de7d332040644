"""Compiles: options, folders, caches, errors; each error leaves the Context usable."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from conftest import add

from mlsdk import (
    CacheOptions,
    Context,
    MNDevice,
    TensorProxy,
    register_pytree_dataclass,
    register_pytree_namedtuple,
)
from mlsdk.errors import (
    CodegenDirError,
    ContextError,
    DataDependentControlFlow,
    GraphError,
    InputMismatch,
    MLSDKError,
    OptionError,
    StoreError,
    TraceError,
    UnsupportedOperator,
)


@pytest.fixture
def usable(any_context, tmp_path, pair):
    """Asserts, after the test, that a good compile works in the same Context."""
    yield
    function = any_context.compile(add, pair, tmp_path / "after")
    assert torch.equal(function(pair)["sum"].cpu(), pair["a"] + pair["b"])


# --- what cannot be meant ---

BAD = {
    "option name": (
        {"options": {"float_dtpye": "float"}},
        OptionError,
        "no option 'float_dtpye'; did you mean 'float_dtype'",
    ),
    "option value": (
        {"options": {"float_dtype": "flaot"}},
        OptionError,
        "'flaot' is not allowed; did you mean 'float'",
    ),
    "option type": ({"options": {"sram_budget": "half"}}, OptionError, "option sram_budget: 'half' is no number"),
    "options": ({"options": ["float"]}, OptionError, "options is list; give a mapping"),
    "option_json": (
        {"options": {"option_json": "/nowhere/O9.json"}},
        OptionError,
        "option_json /nowhere/O9.json: No such",
    ),
    "cache": ({"cache_options": "/tmp/cache"}, OptionError, r"cache_options is str; give CacheOptions\(directory\)"),
    "threads": ({"num_compiler_threads": "many"}, OptionError, "num_compiler_threads is str; give a whole number"),
    "export": ({"export_kwargs": {"use_fx2onx": True}}, OptionError, "no 'use_fx2onx'; did you mean 'use_fx2onnx'"),
    "constraint": ({"io_spec_constraints": {"sum": "row"}}, OptionError, "sum is str; give an IOSpec"),
    "folder": ({"codegen_dir": ""}, InputMismatch, "codegen_dir is missing"),
    "a file": (
        {"codegen_dir": __file__},
        CodegenDirError,
        "it is no folder; give a folder that can be made and written",
    ),
    "below": ({"codegen_dir": f"{__file__}/f/g"}, CodegenDirError, f"/f/g: {__file__} is no folder"),
    "outside": ({"codegen_dir": "../add"}, ContextError, "'../add' leaves the working directory"),
    "function": ({"function": "add"}, InputMismatch, "function is str"),
    "inputs": ({"inputs": [1]}, InputMismatch, "inputs is list; give a mapping"),
    "no tensor": ({"inputs": {"a": 1, "b": 2}}, InputMismatch, "input a is int, not a tensor"),
    "dtype": (
        {"inputs": {"a": torch.zeros(1, dtype=torch.int8), "b": torch.zeros(1)}},
        InputMismatch,
        "has dtype int8",
    ),
}


def test_bad_arguments(any_context, usable, tmp_path, pair):
    for changed, kind, message in BAD.values():
        arguments = {"function": add, "inputs": pair, "codegen_dir": tmp_path / "add", **changed}
        with pytest.raises(kind, match=message):
            any_context.compile(**arguments)
        assert not (tmp_path / "add").exists()


def test_the_signature_is_the_official_one():
    names = list(inspect.signature(Context.compile).parameters)
    assert names[:4] == ["self", "function", "inputs", "codegen_dir"]
    assert {"options", "cache_options", "num_compiler_threads", "export_kwargs", "optimizers"} <= set(names)
    assert {"training", "io_spec_constraints", "quiet"} <= set(names)
    assert "codegen_base_dir" not in names and "name" not in names


# --- what goes wrong in the function ---


def fails(inputs):
    raise ValueError("mine")


def stops(inputs):
    raise KeyboardInterrupt


def recurses(inputs):
    return recurses(inputs)


def returns_a_tensor(inputs):
    return inputs["a"]


def returns_a_number(inputs):
    return {"y": 1.5 if inputs["a"].shape else "no"}


def branches(inputs):
    return {"y": inputs["a"] if inputs["a"].sum() > 0 else inputs["b"]}


def loops(inputs):
    return {"y": inputs["a"] * sum(range(int(inputs["b"].sum())))}


def decomposes(inputs):
    u, s, v = torch.linalg.svd(inputs["a"])
    return {"y": torch.linalg.qr(inputs["b"]).Q, "s": s}


def takes_two(a, b):
    return {"y": a + b}


class TakesTwo(torch.nn.Module):
    def forward(self, a, b):
        return {"y": a + b}


def misspells(inputs):
    return {"y": inputs["a"].sofmax(0)}


WRONG = {
    takes_two: (TraceError, r"takes_two\(a, b\) is compiled as a function of one mapping.*compile_automap"),
    TakesTwo(): (TraceError, r"TakesTwo\(a, b\) is compiled as a function of one mapping"),
    misspells: (AttributeError, "torch.Tensor has no attribute 'sofmax'"),
    fails: (ValueError, "^mine"),
    stops: (KeyboardInterrupt, ""),
    recurses: (RecursionError, ""),
    returns_a_tensor: (TraceError, "returns a tensor; return a mapping"),
    returns_a_number: (TraceError, "result y is float, not a tensor"),
    branches: (DataDependentControlFlow, r"test_api_compile.py:\d+.*torch.where"),
    loops: (DataDependentControlFlow, r"test_api_compile.py:\d+"),
    decomposes: (UnsupportedOperator, r"svd at .*test_api_compile.py:\d+"),
}


def test_what_goes_wrong_in_the_function(any_context, usable, tmp_path, pair):
    for function, (kind, message) in WRONG.items():
        with pytest.raises(kind, match=message):
            any_context.compile(function, pair, tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()


def test_operators_without_an_emitter_are_listed_with_their_lines(context, tmp_path, pair, monkeypatch):
    from mlsdk.pipeline.layout import rules

    known = rules.rule_of
    without = ("Erf", "Cos")
    monkeypatch.setattr(rules, "rule_of", lambda node, planner: None if node.op in without else known(node, planner))

    def function(inputs):
        return {"y": torch.erf(inputs["a"]).cos() + inputs["b"]}

    with pytest.raises(MLSDKError, match="2 operators not supported: Cos, Erf") as caught:
        context.compile(function, pair, tmp_path / "f")
    for name in without:
        assert re.search(rf"{name} at \S*test_api_compile.py:\d+", str(caught.value))
    assert [misuse.what for misuse in caught.value.misuses] == list(without) and caught.value.phase == "LayoutPlan"
    with Context(MNDevice("pfvm:cpu")) as host:
        result = host.compile(function, pair, tmp_path / "f")(pair)["y"].cpu()
    assert torch.allclose(result, function(pair)["y"], atol=1e-6)


def test_the_function_gets_a_copy_of_the_mapping(any_context, tmp_path, pair):
    def function(inputs):
        assert all(isinstance(value, torch.Tensor) for value in inputs.values())
        result = {"y": inputs["a"] + 1}
        inputs["a"] = None
        inputs["more"] = 1
        return result

    f = any_context.compile(function, pair, tmp_path / "f")
    assert list(pair) == ["a", "b"] and pair["a"] is not None
    assert torch.equal(f(pair)["y"].cpu(), pair["a"] + 1)


def test_proxies_are_samples(any_context, tmp_path, pair):
    first = any_context.compile(add, pair, tmp_path / "first")
    result = first(pair)
    second = any_context.compile(lambda i: {"y": i["sum"] * 2}, result, tmp_path / "second")
    assert torch.equal(second(result)["y"].cpu(), 2 * (pair["a"] + pair["b"]))


# --- folders and caches ---


def test_a_folder_is_updated_in_place(any_context, tmp_path, pair):
    directory = tmp_path / "f"
    directory.mkdir()
    (directory / "checkpoint.pt").write_text("mine")
    any_context.compile(add, pair, directory)
    first = json.loads((directory / "manifest.json").read_text())["files"]["model.onnx"]
    f = any_context.compile(lambda i: {"y": i["a"] * i["b"]}, pair, directory)
    assert json.loads((directory / "manifest.json").read_text())["files"]["model.onnx"] != first
    assert (directory / "checkpoint.pt").read_text() == "mine"
    assert torch.equal(f(pair)["y"].cpu(), pair["a"] * pair["b"])
    assert torch.equal(any_context.load_codegen_dir(directory)(pair)["y"].cpu(), pair["a"] * pair["b"])


@pytest.mark.parametrize("how", ["changed", "missing", "cut"])
def test_a_damaged_folder_names_the_file(context, tmp_path, pair, how):
    context.compile(add, pair, tmp_path / "f")
    file = tmp_path / "f" / "model.app.zst"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(data if how == "changed" else data[:-5])
    with pytest.raises(CodegenDirError, match=f"{file} (is missing|was changed or is damaged)"):
        context.load_codegen_dir(tmp_path / "f")
    context.compile(add, pair, tmp_path / "f")
    assert torch.equal(context.load_codegen_dir(tmp_path / "f")(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_a_folder_that_is_none(any_context, tmp_path):
    with pytest.raises(CodegenDirError, match="manifest.json is missing: .* is no codegen_dir"):
        any_context.load_codegen_dir(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_folder_of_pfvm_on_a_board(context, host, tmp_path, pair):
    host.compile(add, pair, tmp_path / "f")
    with pytest.raises(CodegenDirError, match="holds no model.app.zst: it was compiled for pfvm"):
        context.load_codegen_dir(tmp_path / "f")
    context.compile(add, pair, tmp_path / "g")
    assert torch.equal(host.load_codegen_dir(tmp_path / "g")(pair)["sum"].cpu(), pair["a"] + pair["b"])


def test_nothing_is_built_twice(context, tmp_path, pair, caplog):
    cache = CacheOptions(
        tmp_path / "f" / "cache",
        enable_app_cache=True,
        enable_onnx_cache=True,
        enable_codegen_cache=True,
        enable_gpfn2obj_cache=True,
    )

    def built():
        context.compile(add, pair, tmp_path / "f", cache_options=cache)
        lines = (tmp_path / "f" / "CLOG.log").read_text().splitlines()
        return [line.split()[2].rstrip(":") for line in lines if ": built" in line]

    assert built() == ["Trace", "OptimizeOnnx", "LayoutPlan", "Schedule", "Simulate", "Emit", "Load"]
    assert built() == []
    for switch, again in {
        "enable_app_cache": ["Load"],
        "enable_onnx_cache": ["OptimizeOnnx"],
        "enable_codegen_cache": ["LayoutPlan", "Schedule", "Simulate"],
        "enable_gpfn2obj_cache": ["Emit"],
    }.items():
        cache = CacheOptions(tmp_path / "f" / "cache", **{switch: False})
        assert built() == again


def test_cache_options_are_checked(host, tmp_path, pair):
    with pytest.raises(StoreError, match="is not a folder") as error:
        host.compile(add, pair, tmp_path / "f", cache_options=CacheOptions(__file__))
    assert error.value.__notes__ == [
        f"here the store is the cache_dir {__file__} of cache_options: give another one there"
    ]
    with pytest.raises(OptionError, match="cache_dir is NoneType; give the path of a folder"):
        CacheOptions(None)
    with pytest.raises(OptionError, match="enable_app_cache is 1; give True or False"):
        CacheOptions("cache", enable_app_cache=1)


def test_out_onnx(any_context, tmp_path, pair):
    any_context.compile(add, pair, tmp_path / "f", options={"out_onnx": str(tmp_path / "deep" / "add.onnx")})
    assert (tmp_path / "deep" / "add.onnx").read_bytes() == (tmp_path / "f" / "model.onnx").read_bytes()


def test_keywords_of_the_examples(any_context, tmp_path, pair):
    f = any_context.compile(
        function=add,
        inputs=pair,
        codegen_dir=tmp_path / "f",
        options={},
        cache_options=None,
        num_compiler_threads=-1,
        export_kwargs={"use_fx2onnx": True},
        optimizers=None,
        training=False,
        io_spec_constraints=None,
        quiet=True,
    )
    assert "CompiledFunction(add(a: float32 3x4" in repr(f)


# --- where inputs and outputs lie ---


def test_a_consumer_says_where_its_producer_writes(any_context, tmp_path):
    x = torch.randn(9, 13)
    consumer = any_context.compile(
        lambda i: {"y": i["shared"] @ i["shared"].T}, {"shared": torch.zeros(9, 13)}, tmp_path / "consumer"
    )
    producer = any_context.compile(
        lambda i: {"out": i["x"].softmax(1)},
        {"x": x},
        tmp_path / "producer",
        io_spec_constraints={"out": consumer.input_specs["shared"]},
    )
    assert producer.output_specs["out"].is_memcopyable_to(consumer.input_specs["shared"])
    result = producer({"x": x})
    before = vars(any_context.counters).copy()
    y = consumer({"shared": result["out"]})["y"]
    any_context.synchronize()
    after = vars(any_context.counters)
    assert {name for name in after if after[name] != before[name]} <= {"runs", "steps", "relocations"}
    assert after["relocations"] == before["relocations"] + 1
    assert torch.allclose(y.cpu(), x.softmax(1) @ x.softmax(1).T, atol=1e-6)


def test_padding_that_is_not_zero_is_not_copied_into_place(context, tmp_path):
    """A softmax leaves numbers where no element lies, and products rely on zeros there."""
    x = torch.randn(9, 13)
    consumer = context.compile(lambda i: {"y": i["s"] @ i["s"].T}, {"s": torch.zeros(9, 13)}, tmp_path / "consumer")
    producer = context.compile(lambda i: {"out": i["x"].softmax(1)}, {"x": x}, tmp_path / "producer")
    assert not producer.output_specs["out"].is_memcopyable_to(consumer.input_specs["s"])
    y = consumer({"s": producer({"x": x})["out"]})["y"]
    assert torch.allclose(y.cpu(), x.softmax(1) @ x.softmax(1).T, atol=1e-6)
    assert context.counters.conversions == 1


def test_an_input_is_placed_like_another_functions(any_context, tmp_path):
    first = any_context.compile(
        lambda i: {"y": i["x"] @ i["w"]}, {"x": torch.zeros(5, 6), "w": torch.zeros(6, 7)}, tmp_path / "a"
    )
    second = any_context.compile(
        lambda i: {"y": i["v"].T + 1},
        {"v": torch.zeros(6, 7)},
        tmp_path / "b",
        io_spec_constraints={"v": first.input_specs["w"]},
    )
    assert second.input_specs["v"].is_memcopyable_to(first.input_specs["w"])
    v = torch.randn(6, 7)
    assert torch.equal(second({"v": v})["y"].cpu(), v.T + 1)


def test_a_constraint_of_what_goes_round_holds_for_input_and_output(any_context, tmp_path):
    """A cache that a function takes and gives under one name lies alike in both, and no host is between two calls."""
    cache, x = torch.zeros(2, 4, 8, 5), torch.randn(2, 4, 1, 5)

    def step(inputs):
        cache = inputs["cache"].index_copy(2, torch.tensor([3]), inputs["x"])
        return {"cache": cache, "y": (inputs["x"] @ cache.transpose(2, 3)).softmax(3)}

    sample = {"cache": cache, "x": x}
    spec = any_context.compile(step, sample, tmp_path / "first").input_specs["cache"]
    f = any_context.compile(step, sample, tmp_path / "second", io_spec_constraints={"cache": spec})
    assert spec.is_memcopyable_to(f.input_specs["cache"])
    assert f.output_specs["cache"].is_memcopyable_to(f.input_specs["cache"])
    state = f(sample)
    for _ in range(3):
        state = f({"x": x, **state})
    assert torch.allclose(state["y"].cpu(), step({"cache": cache, "x": x})["y"], atol=1e-5)
    assert any_context.counters.conversions == 0
    wrong = {"cache": torch.zeros(2, 4, 8, 6), "x": torch.zeros(2, 4, 1, 6)}
    with pytest.raises(InputMismatch, match=r"cache is float32 \[2, 4, 8, 6\], and the given IOSpec is for"):
        any_context.compile(step, wrong, tmp_path / "wrong", io_spec_constraints={"cache": spec})


def test_constraints_that_do_not_fit(any_context, tmp_path, pair):
    other = any_context.compile(lambda i: {"y": i["x"] * 1}, {"x": torch.zeros(5)}, tmp_path / "other")
    for key, message in {
        "smu": "there is no input or output 'smu'; did you mean 'sum'",
        "sum": r"sum is float32 \[3, 4\], and the given IOSpec is for float32 \[5\]",
    }.items():
        with pytest.raises(InputMismatch, match=message):
            any_context.compile(add, pair, tmp_path / "f", io_spec_constraints={key: other.input_specs["x"]})


def test_specs_are_compared_with_specs(any_context, tmp_path, pair):
    f = any_context.compile(add, pair, tmp_path / "f")
    assert f.input_specs["a"].is_memcopyable_to(f.input_specs["b"])
    with pytest.raises(TypeError, match="takes an IOSpec, not str"):
        f.input_specs["a"].is_memcopyable_to("b")


# --- ordinary signatures ---


@register_pytree_namedtuple
class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@register_pytree_dataclass
@dataclass
class Box:
    low: Point
    size: torch.Tensor
    label: str = "box"


def test_automap_takes_nested_arguments(any_context, tmp_path):
    def move(box, by, *, scale, twice=True):
        factor = 2 if twice else 1
        return Box(Point(box.low.x + by[0] * factor, box.low.y + by[1]), box.size * scale["all"])

    def example():
        return (Box(Point(torch.randn(3), torch.randn(3)), torch.randn(2)), [torch.randn(3), torch.randn(3)])

    f = any_context.compile_automap(move, example(), {"scale": {"all": torch.ones(2)}}, tmp_path / "move")
    args, scale = example(), {"all": torch.tensor([2.0, 3.0])}
    result, expected = f(*args, scale=scale), move(*args, scale=scale)
    assert type(result) is Box and type(result.low) is Point and result.label == "box"
    assert isinstance(result.size, TensorProxy)
    assert torch.allclose(result.low.x.cpu(), expected.low.x)
    assert torch.allclose(result.size.cpu(), expected.size)
    again = any_context.load_codegen_dir(tmp_path / "move")
    assert torch.allclose(again(*args, scale=scale).low.y.cpu(), expected.low.y)


def test_automap_gives_one_proxy_for_one_tensor(any_context, tmp_path):
    f = any_context.compile_automap(
        lambda a, b: a + b, (torch.zeros(3), torch.zeros(3)), {}, codegen_dir=tmp_path / "f"
    )
    result = f(torch.ones(3), torch.ones(3))
    assert isinstance(result, TensorProxy) and result.cpu().tolist() == [2, 2, 2]


def test_automap_refuses_another_structure(any_context, tmp_path):
    f = any_context.compile_automap(lambda a, k=1: a * k, (torch.zeros(3),), {"k": 2}, tmp_path / "f")
    assert f(torch.ones(3), k=2).cpu().tolist() == [2, 2, 2]
    for call in (lambda: f(torch.ones(3), k=3), lambda: f([torch.ones(3)], k=2), lambda: f(torch.ones(3))):
        with pytest.raises(
            InputMismatch, match="is called with other arguments than it was compiled for: (kwargs.k|args.0): "
        ):
            call()


def test_classes_have_to_be_registered(any_context, tmp_path):
    class Pair(NamedTuple):
        a: torch.Tensor

    with pytest.raises(GraphError, match="which is not registered; decorate the class"):
        any_context.compile_automap(lambda p: p.a, (Pair(torch.zeros(1)),), {}, tmp_path / "f")
    with pytest.raises(GraphError, match="neither a NamedTuple nor a dataclass"):
        register_pytree_dataclass(int)
    with pytest.raises(InputMismatch, match="takes a tuple of positional and a mapping of keyword arguments"):
        any_context.compile_automap(lambda a: a, torch.zeros(1), {}, tmp_path / "f")
