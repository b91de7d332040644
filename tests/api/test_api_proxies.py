"""TensorProxy: a handle that torch takes like a tensor."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from conftest import add

from mlsdk import TensorLike, TensorProxy
from mlsdk.errors import ContextError, InputMismatch


@pytest.fixture
def added(any_context, tmp_path, pair):
    return any_context.compile(add, pair, tmp_path / "add")


@pytest.fixture
def proxy(added, pair):
    return added(pair)["sum"]


@pytest.fixture
def expected(pair):
    return pair["a"] + pair["b"]


def test_what_is_known_without_the_device(any_context, proxy):
    before = any_context.counters.downloads
    assert proxy.shape == torch.Size([3, 4]) and proxy.shape[1] == 4
    assert proxy.dtype == torch.float32
    assert (proxy.ndim, proxy.dim(), proxy.size(), proxy.size(0), proxy.numel(), len(proxy)) == (2, 2, (3, 4), 3, 12, 3)
    assert not proxy.requires_grad
    assert "shape=[3, 4]" in repr(proxy)
    assert any_context.counters.downloads == before


def test_cpu_is_a_snapshot(added, pair, proxy, expected):
    first = proxy.cpu()
    assert type(first) is torch.Tensor
    added({**pair, "a": torch.zeros(3, 4)})
    first.zero_()
    assert torch.equal(proxy.cpu(), expected)


def test_kinds(proxy):
    assert isinstance(proxy, TensorProxy) and isinstance(proxy, torch.Tensor)  # so that libraries take it for one
    assert isinstance(proxy, TensorLike) and isinstance(torch.zeros(1), TensorLike)


FORMS = {
    "plus": lambda t: t + 1,
    "reflected": lambda t: 2 - t,
    "tensor first": lambda t: torch.ones(3, 4) * t,
    "guidance": lambda t: t.chunk(2, 1)[0] + 7.5 * (t.chunk(2, 1)[1] - t.chunk(2, 1)[0]),
    "matmul": lambda t: t @ t.T,
    "negative": lambda t: -t,
    "absolute": lambda t: abs(t),
    "compared": lambda t: t > 0,
    "equal": lambda t: t == t,
    "slice": lambda t: t[:, -2:],
    "slice with a tensor": lambda t: t[:, -torch.tensor(2) :],
    "ellipsis": lambda t: t[..., None],
    "mask": lambda t: t[t > 0],
    "iteration": lambda t: torch.stack(list(t)),
    "split": lambda t: torch.cat(t.split(2, dim=1)),
    "view": lambda t: t.detach().view(-1),
    "method with keywords": lambda t: t.sum(dim=1, keepdim=True),
    "method with a proxy": lambda t: t.mul(t),
    "function": lambda t: torch.softmax(t, 1),
    "cat": lambda t: torch.cat([t, t]),
    "stack": lambda t: torch.stack((t, t)),
    "topk": lambda t: torch.topk(t.detach().view(-1), 3).values,
    "functional": lambda t: torch.nn.functional.relu(t),
    "where": lambda t: torch.where(t > 0, t, 0),
    "max with indices": lambda t: t.max(-1).indices,
    "to": lambda t: t.to(torch.float64),
    "in place of an index": lambda t: torch.arange(100)[t.abs().long()],
    "added in place": lambda t: torch.zeros(3, 4).add_(t),
    "array": lambda t: torch.from_numpy(np.array(t)),
    "T": lambda t: t.T,
    "in place of an index of two rows": lambda t: torch.arange(40).view(5, 8)[t[0, :2].abs().long()],
    "a mask of another": lambda t: torch.ones(3, 4)[t > 0],
    "as_tensor": lambda t: torch.as_tensor(t) + 0,
    "tensor": lambda t: torch.tensor(t.cpu()) if type(t) is torch.Tensor else torch.tensor(t),
    "of numbers": lambda t: torch.tensor([t.sum(), 2.0]),
    "collated": lambda t: torch.utils.data.default_collate([{"a": t}, {"a": t}])["a"],
    "copied into another": lambda t: torch.zeros(3, 4).copy_(t),
    "assigned to a row": lambda t: _assigned(torch.zeros(2, 3, 4), 1, t),
    "added to a total": lambda t: _total([t, t]),
}


def _assigned(target, index, value):
    target[index] = value
    return target


def _total(losses):
    total = losses[0]
    for loss in losses[1:]:
        total += loss
    return total


@pytest.mark.parametrize("form", FORMS)
def test_it_stands_where_a_tensor_does(proxy, expected, form):
    result = FORMS[form](proxy)
    assert type(result) is torch.Tensor
    assert torch.equal(result, FORMS[form](expected))


def test_as_an_index(any_context, tmp_path):
    """Two or three integers are rows, and no place of one element."""
    f = any_context.compile(lambda i: {"n": i["x"] + 1, "m": i["x"] > 1}, {"x": torch.arange(3)}, tmp_path / "f")
    result, table = f({"x": torch.arange(3)}), torch.randn(4, 5, 6)
    assert torch.equal(table[result["n"]], table[1:]) and torch.equal(table[0, result["n"]], table[0, 1:4])
    assert torch.equal(table[:3][result["m"]], table[2:3])
    table[result["n"]] = 0
    assert table[1:].abs().max() == 0 and table[0].abs().min() > 0
    again = any_context.compile(lambda i: {"y": i["x"] * result["n"]}, {"x": torch.arange(3)}, tmp_path / "g")
    assert again({"x": torch.arange(3)})["y"].tolist() == [0, 2, 6]


def test_checks_of_torch(proxy, expected):
    assert torch.allclose(proxy, expected) and torch.allclose(expected, proxy[:, :], atol=1e-3)
    assert (proxy - expected).abs().max() == 0
    torch.testing.assert_close(proxy.cpu(), expected)


def test_numbers(any_context, tmp_path):
    f = any_context.compile(lambda i: {"n": i["x"].sum(), "b": i["x"].argmax(0)}, {"x": torch.zeros(4)}, tmp_path / "f")
    result = f({"x": torch.tensor([1.0, 2.0, 3.0, 4.0])})
    assert result["n"].item() == float(result["n"]) == 10.0
    assert f"{result['n']:.2f}" == "10.00"
    assert result["b"].item() == int(result["b"]) == 3 and [0, 1, 2, 3][result["b"]] == 3
    assert result["b"].dtype == torch.int64
    assert bool(result["n"] > 9)


def test_a_detached_tensor_is_the_programs_own(proxy, expected):
    scores = proxy.detach().view(-1)
    scores[torch.arange(12) < 6] = float("inf")
    assert torch.equal(proxy.cpu(), expected)


def test_device_is_refused_with_advice(proxy):
    with pytest.raises(AttributeError, match=r"no \.device: .* call \.cpu\(\) first"):
        proxy.device  # noqa: B018
    assert getattr(proxy, "device", None) is None


def test_unknown_attributes(proxy):
    with pytest.raises(AttributeError, match="no attribute 'foo', and neither has torch.Tensor"):
        proxy.foo  # noqa: B018


def test_writing_in_place_is_refused(proxy):
    def assigned():
        proxy[0] = 1

    for write in (assigned, lambda: proxy.zero_(), lambda: torch.add(proxy, 1, out=proxy), lambda: torch.relu_(proxy)):
        with pytest.raises(InputMismatch, match="cannot be written in place; use load_from"):
            write()


def test_copies_and_files_hold_the_tensor(proxy, expected):
    assert torch.equal(copy.deepcopy({"loss": proxy})["loss"], expected)
    file = io.BytesIO()
    torch.save({"loss": proxy}, file)
    file.seek(0)
    assert torch.equal(torch.load(file)["loss"], expected)


def test_proxies_are_keys(proxy, added, pair):
    assert len({proxy, proxy, added(pair)["sum"]}) == 2


# --- load_from ---


def test_a_proxy_that_was_never_loaded(added, pair):
    proxies = added.allocate_input_proxy()
    with pytest.raises(ContextError, match="nothing was loaded into input a yet; call load_from first"):
        proxies["a"].cpu()
    with pytest.raises(InputMismatch, match="input a: its proxy was never loaded; call load_from first"):
        added({**pair, "a": proxies["a"]})


def test_allocated_inputs_are_loaded_and_used(added, pair, expected):
    proxies = added.allocate_input_proxy()
    for key, proxy in proxies.items():
        proxy.load_from(pair[key])
    assert torch.equal(proxies["a"].cpu(), pair["a"])
    for _ in range(2):
        assert torch.equal(added(proxies)["sum"].cpu(), expected)
    proxies["a"].load_from(torch.ones(3, 4), clone=False)
    assert torch.equal(added(proxies)["sum"].cpu(), 1 + pair["b"])


def test_each_allocation_has_its_own_memory(added, pair):
    one, other = added.allocate_input_proxy(), added.allocate_input_proxy()
    for proxies, number in ((one, 1.0), (other, 2.0)):
        for proxy in proxies.values():
            proxy.load_from(torch.full((3, 4), number))
    assert added(one)["sum"].cpu()[0, 0] == 2 and added(other)["sum"].cpu()[0, 0] == 4


def test_an_entry_is_replaced_by_another_functions_result(added, pair, proxy, expected):
    proxies = added.allocate_input_proxy()
    proxies["b"].load_from(pair["b"])
    proxies["a"] = proxy
    assert torch.allclose(added(proxies)["sum"].cpu(), expected + pair["b"])


def test_loading_waits_for_the_calls_before_it(added, pair):
    proxies = added.allocate_input_proxy()
    proxies["b"].load_from(torch.zeros(3, 4))
    results = []
    for number in range(8):
        proxies["a"].load_from(torch.full((3, 4), float(number)), clone=bool(number % 2))
        results.append(added(proxies)["sum"])
    assert [result.cpu()[0, 0].item() for result in results] == list(range(8))


def test_with_clone_later_changes_do_not_matter(added, pair, expected):
    proxies = added.allocate_input_proxy()
    a = pair["a"].clone()
    proxies["a"].load_from(a, clone=True)
    a.zero_()
    assert torch.equal(added({**pair, "a": proxies["a"]})["sum"].cpu(), expected)


def test_without_clone_the_source_may_change_after_the_call(added, pair, expected):
    proxies = added.allocate_input_proxy()
    a = pair["a"].clone()
    proxies["a"].load_from(a, clone=False)
    result = added({**pair, "a": proxies["a"]})
    a.zero_()
    assert torch.equal(result["sum"].cpu(), expected)


def test_without_clone_an_early_change_is_an_error(any_context, added, pair):
    proxies = added.allocate_input_proxy()
    paused = any_context._session.loader
    go = __import__("threading").Event()
    paused.submit(go.wait)  # the loader is busy, so the source is read after the change
    a = pair["a"].clone()
    proxies["a"].load_from(a, clone=False)
    a.zero_()
    go.set()
    with pytest.raises(ContextError, match="input a was loaded from with clone=False was changed before it was read"):
        added({**pair, "a": proxies["a"]})["sum"].cpu()
    assert torch.equal(added(pair)["sum"].cpu(), pair["a"] + pair["b"])  # usable after it


def test_a_proxy_is_loaded_from_a_proxy(added, pair, proxy, expected):
    proxies = added.allocate_input_proxy()
    proxies["a"].load_from(proxy)
    added({**pair, "a": torch.zeros(3, 4)})
    assert torch.equal(proxies["a"].cpu(), expected)


@pytest.mark.parametrize(
    "source, message",
    [
        (torch.zeros(4, 3), r"input a is float32\[3,4\], and cannot be loaded from float32\[4,3\]"),
        (
            torch.zeros(3, 4, dtype=torch.float64),
            r"cannot be loaded from float64\[3,4\]; give the same dtype and shape",
        ),
        (torch.zeros(3, 4, dtype=torch.complex64), "cannot be loaded from a torch.complex64 tensor"),
        (torch.zeros(3, 4).to_sparse(), "of layout torch.sparse_coo; give a dense tensor"),
        ([[0.0] * 4] * 3, "input a cannot be loaded from list; give a torch.Tensor or a TensorProxy"),
    ],
)
def test_sources_that_do_not_fit(added, source, message):
    with pytest.raises(InputMismatch, match=message):
        added.allocate_input_proxy()["a"].load_from(source)


def test_a_source_that_is_not_contiguous(added, pair):
    proxies = added.allocate_input_proxy()
    a = torch.randn(4, 3).t()
    proxies["a"].load_from(a)
    assert torch.equal(added({**pair, "a": proxies["a"]})["sum"].cpu(), a + pair["b"])


def test_staging_is_bounded(any_context, added):
    session = any_context._session
    session.staging.size = 1
    proxies = added.allocate_input_proxy()
    for number in range(5):
        proxies["a"].load_from(torch.full((3, 4), float(number)))
    assert proxies["a"].cpu()[0, 0] == 4
    assert session.staging.used == 0


def test_a_result_keeps_its_device_open(tmp_path, pair, expected):
    from mlsdk import Context, MNDevice
    from mlsdk.runtime.session import open_sessions

    def program():
        context = Context(MNDevice("mncore2:0"))
        return context.compile(add, pair, tmp_path / "add")(pair)["sum"]

    result = program()
    assert torch.equal(result.cpu(), expected)
    session = result._value.session
    del result
    session.closed.wait(5)
    assert session not in open_sessions() and session.closed.is_set()
