"""Signature and pytree specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from mlsdk.errors import GraphError
from mlsdk.pipeline.ir import pytree
from mlsdk.pipeline.ir.signature import Input, Output, Signature, State
from mlsdk.structure import difference


class Point(NamedTuple):
    x: object
    y: object


@dataclass
class Batch:
    image: object
    label: object = None


class Leaf:
    """Stands for a tensor."""


def signature(**changes):
    parts = {
        "inputs": (Input("x", "float32", (2, 3), "x"), Input("ids", "int64", (), "ids_1")),
        "outputs": (Output("y", "float32", (2,), "y"), Output("also y", "float32", (2,), "y")),
        "state": (State("w", "float32", (3,), "w", "w.next"), State("g", "float32", (3,), "", "g.next")),
        "call_spec": pytree.flatten({"args": (Leaf(), [Leaf(), None, 1.5]), "kwargs": {"k": Leaf()}})[1],
    }
    return Signature(**{**parts, **changes})


def test_signature_survives_json():
    one = signature()
    again = Signature.from_json(one.to_json())
    assert again == one and again.to_json() == one.to_json()
    short = signature(outputs=(Output("y", "float32", (2,), "y", True),))
    assert Signature.from_json(short.to_json()).outputs[0].bfloat16
    assert again.input_by_key["ids"].value == "ids_1" and again.state_by_name["g"].input == ""


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "inputs": [{}]}', "\x00"])
def test_a_broken_signature_is_refused(text):
    with pytest.raises(GraphError):
        Signature.from_json(text)


def test_keys_are_unique():
    with pytest.raises(GraphError, match="input is named twice"):
        signature(inputs=(Input("x", "float32", (), "a"), Input("x", "float32", (), "b")))


def test_trees_flatten_and_come_back():
    pytree.register_class(Point)
    pytree.register_class(Batch)
    a, b, c, d = Leaf(), Leaf(), Leaf(), Leaf()
    tree = {"args": (Point(a, [b, None]), Batch(c)), "kwargs": {"k": {"deep": d, 3: "text", "nan": float("inf")}}}
    leaves, spec = pytree.flatten(tree)
    assert leaves == [("args.0.x", a), ("args.0.y.0", b), ("args.1.image", c), ("kwargs.k.deep", d)]
    again = pytree.spec_from_json(pytree.spec_to_json(spec))
    assert again == spec and difference(spec, again) == ""
    assert pytree.unflatten(again, dict(leaves).__getitem__) == tree


def test_structure_tells_static_values_apart():
    specs = [pytree.flatten(tree)[1] for tree in ([1], [1.0], [True], [None], (1,), [Leaf()])]
    assert all((difference(a, b) == "") == (a is b) for a in specs for b in specs)


def test_unregistered_classes_are_refused():
    class Other(NamedTuple):
        x: object

    @dataclass
    class Plain:
        x: object

    with pytest.raises(GraphError, match="Other, which is not registered"):
        pytree.flatten([Other(Leaf())])
    with pytest.raises(GraphError, match="Plain, which is not registered"):
        pytree.flatten([Plain(Leaf())])
    with pytest.raises(GraphError, match="neither a NamedTuple nor a dataclass"):
        pytree.register_class(int)


def test_a_class_of_another_process_is_named():
    spec = pytree.Spec("dataclass", "gone:Batch", ("x",), (pytree.Spec("leaf", "x"),))
    with pytest.raises(GraphError, match="class gone:Batch is not registered in this process"):
        pytree.unflatten(spec, lambda path: path)
