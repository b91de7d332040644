"""Every fail point, in every way to fail: nothing is half-published, and the same commands then give the same bytes."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import invariants
import pytest
from standins import TRACED

from mlsdk import store as stores
from mlsdk.errors import StoreError
from mlsdk.store import failpoints, gc
from mlsdk.tasks import codegen_dir
from mlsdk.tasks.chain import build_chain
from mlsdk.tasks.errors import CodegenDirError

PHASES = ("LayoutPlan",)


def scenario(root: Path) -> dict[str, str]:
    """Builds, damage, a lost index, a collection, a codegen_dir: passes every fail point."""
    with stores.open(root) as store:
        first = build_chain(TRACED, store=store, label="add", phases=PHASES)
        path = store.objects.path(first.outputs["model.onnx"].digest)
        path.chmod(0o644)
        path.write_bytes(b"damaged")
        codegen_dir.materialise(first, root.parent / "codegen")
    (root / "index.sqlite").unlink()
    with stores.open(root) as store:
        build_chain(TRACED, {"float_dtype": "half"}, store=store, label="add", phases=PHASES)
    with stores.open(root) as store:
        gc.collect(store, grace=0)
    with stores.open(root) as store:
        last = build_chain(TRACED, store=store, label="add", phases=PHASES)
        codegen_dir.materialise(last, root.parent / "codegen")
        codegen_dir.verify(root.parent / "codegen")
        return {name: output.digest for name, output in last.outputs.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    monkeypatch = pytest.MonkeyPatch()
    import standins

    from mlsdk.tasks import adapters

    for name, function in standins.FUNCTIONS.items():
        monkeypatch.setattr(adapters, name, function)
    failpoints.passed = set()
    try:
        digests = scenario(folder / "store")
        passed = failpoints.passed
    finally:
        failpoints.passed = None
        monkeypatch.undo()
    return digests, passed


def test_the_scenario_passes_every_fail_point(undisturbed):
    assert undisturbed[1] == set(failpoints.NAMES)


# Each place in each way at its first pass; places in the middle of a publication also at a later one.
CASES = [(name, action, 1) for name in failpoints.NAMES for action in ("kill", "raise", "enospc")]
CASES += [(name, "kill", 4) for name in failpoints.NAMES if name.startswith(("object.", "manifest.", "index."))]


@pytest.mark.parametrize(("name", "action", "number"), CASES)
def test_after_a_failure_the_same_commands_give_the_same(name, action, number, undisturbed, root, tmp_path):
    shutil.rmtree(root, ignore_errors=True)
    setting = f"{name}:{number}:{action}"
    if action == "kill":

        def work():
            failpoints.configure(setting)
            scenario(root)

        status = invariants.in_child(work)
        assert status == 9
    else:
        with invariants.failing(setting):
            try:
                scenario(root)
                raise AssertionError("the fail point was not passed")
            except failpoints.FailPoint:
                assert action == "raise"
            except (StoreError, CodegenDirError, OSError) as error:
                assert action == "enospc"
                assert "no space left" in str(error).lower()
    # The scenario itself damages an object, and may have been stopped right after that.
    _forget_own_damage(root)
    invariants.check(root, allow_damaged_orphans=name.startswith("damage."))
    assert scenario(root) == undisturbed[0]
    invariants.check(root)
    assert codegen_dir.verify(tmp_path / "codegen")


def _forget_own_damage(root: Path) -> None:
    with stores.open(root) as store:
        for outputs in invariants.results(store).values():
            for digest, _size in outputs.values():
                path = store.objects.path(digest)
                if path.exists() and path.read_bytes() == b"damaged":
                    store.discard(digest, "")


def test_the_nth_write_of_a_codegen_dir_fails(store, tmp_path, monkeypatch):
    """Each failing write leaves a directory that is found out, and the next one completes it."""
    result = build_chain(TRACED, store=store, label="add")
    import builtins

    for number in range(1, 40):
        target = tmp_path / f"codegen{number}"
        count = 0
        real = builtins.open

        def failing(file, *arguments, _number=number, _real=real, **named):
            nonlocal count
            if isinstance(file, int) and arguments and arguments[0] == "wb":
                count += 1
                if count == _number:
                    raise OSError(errno.ENOSPC, "No space left on device")
            return _real(file, *arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(builtins, "open", failing)
            try:
                codegen_dir.materialise(result, target)
                break
            except StoreError:
                pass
        with pytest.raises(CodegenDirError):
            codegen_dir.verify(target)
        codegen_dir.materialise(result, target)
        codegen_dir.verify(target)
    else:
        raise AssertionError("it never succeeded")
    assert number > 5
