"""What docs/numerics.md says about the board where torch says otherwise, or nothing."""

from __future__ import annotations

import torch

INF, NAN = float("inf"), float("nan")


def function(inputs):
    x, k, zero, places, table = (inputs[key] for key in ("x", "k", "zero", "places", "table"))
    return {
        "half": x * 0.5,
        "difference": x - x,
        "quotient": x / x,
        "sqrt": x.sqrt(),
        "rsqrt": x.rsqrt(),
        "log": x.log(),
        "asin": (x * 2).asin(),
        "sin": (x * 1e20).sin(),
        "remainder": x % 0.0,
        "isnan": x.isnan(),
        "product": k * k,
        "sum": k.sum(),
        "cumsum": k.cumsum(0),
        "floor": k // zero,
        "modulo": k % zero,
        "rows": table[places],
        "one_hot": torch.nn.functional.one_hot(places.clamp(min=0) - (places < 0).long(), 3),
        "added": torch.zeros(3).index_add(0, places, torch.ones(5)),
    }


WANTED = {
    "half": [2.0**127, -(2.0**127), 2.0**127, -0.5],
    "difference": [0, 0, 0, 0],
    "quotient": [INF, INF, INF, 1],
    "sqrt": [INF, 0, INF, 0],
    "rsqrt": [0, INF, 0, INF],
    "log": [INF, -INF, INF, -INF],
    "asin": [1.5707963705062866, -1.5707963705062866, 1.5707963705062866, -1.5707963705062866],
    "sin": [0, 0, 0, 0],
    "remainder": [0, 0, 0, 0],
    "isnan": [False] * 4,
    "product": [1, 46341**2 - 2**32, 49],
    "sum": 2**31 - 1 + 46341 - 7 - 2**32,
    "cumsum": [2**31 - 1, 2**31 - 1 + 46341 - 2**32, 2**31 - 1 + 46341 - 7 - 2**32],
    "floor": [0, 0, -1],
    "modulo": [0, 0, 0],
    "rows": [0, 2, 2, 0, 2],
    "one_hot": [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
    "added": [1, 0, 1],
}


def test_the_tables_of_the_numerics_page(context, tmp_path):
    inputs = {
        "x": torch.tensor([INF, -INF, NAN, -1.0]),
        "k": torch.tensor([2**31 - 1, 46341, -7]),
        "zero": torch.zeros(3, dtype=torch.int64),
        "places": torch.tensor([0, 3, -1, -4, 100]),
        "table": torch.arange(3.0),
    }
    results = context.compile(function, inputs, tmp_path / "f", quiet=True)(inputs)
    for key, wanted in WANTED.items():
        found = results[key].cpu()
        assert torch.equal(found.double(), torch.tensor(wanted).double()), (key, found)


def test_what_asks_for_nan_finds_where_it_would_come_from(any_context, tmp_path):
    def function(inputs):
        x, kept = inputs["x"], inputs["kept"]
        chances = x.masked_fill(~kept, -INF).softmax(-1)
        mean = (x * kept).sum(-1) / kept.sum(-1).float()
        return {
            "attention": chances.nan_to_num(0.0),
            "masked": chances.masked_fill(chances.isnan(), 0.0),
            "mean": torch.where(torch.isnan(mean), -1.0, mean),
            "quotient": (x / kept).nan_to_num(5.0, 6.0, -6.0),
            "roots": torch.nan_to_num(x.sqrt()) + torch.nan_to_num(x.log(), 2.0),
        }

    x = torch.tensor([[1.0, -2.0, 0.0], [3.0, 0.0, -1.0]])
    inputs = {"x": x, "kept": torch.tensor([[True, False, True], [False, False, False]])}
    results = any_context.compile(function, inputs, tmp_path / "f")(inputs)
    for key, wanted in function(inputs).items():
        torch.testing.assert_close(results[key].cpu(), wanted, rtol=1e-6, atol=1e-6, msg=key)


def test_rows_of_planes_beside_padded_ones(context, tmp_path):
    """A softmax along the columns of a plane: rows of both lanes of a word, some of them padding, meet in one step."""
    filters = torch.linspace(-1, 1, 36).reshape(4, 1, 3, 3)

    def function(inputs):
        plane = torch.nn.functional.conv2d(inputs["x"], filters, groups=4, padding=1)
        return {"softmax": plane.softmax(3), "log": plane.log_softmax(3), "most": plane.amax(3), "sum": plane.sum(3)}

    inputs = {"x": torch.linspace(-2, 3, 4 * 9 * 5).reshape(1, 4, 9, 5)}
    results = context.compile(function, inputs, tmp_path / "f")(inputs)
    for key, wanted in function(inputs).items():
        torch.testing.assert_close(results[key].cpu(), wanted, rtol=1e-5, atol=1e-6, msg=key)
