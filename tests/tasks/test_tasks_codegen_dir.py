from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import invariants
import pytest
from standins import TRACED

from mlsdk.store import digest_of
from mlsdk.tasks import codegen_dir
from mlsdk.tasks.chain import build_chain
from mlsdk.tasks.errors import CodegenDirError
from mlsdk.tasks.phases import PHASES


@pytest.fixture
def built(store):
    return build_chain(TRACED, {"float_dtype": "mixed"}, store=store, label="add")


def test_it_holds_every_artifact_and_a_manifest(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "deep" / "codegen")
    files = codegen_dir.verify(root)
    assert set(files) == {*built.outputs, "option.json", "CLOG.log", "glog/codegen.INFO.log"}
    for name, output in built.outputs.items():
        assert digest_of(files[name].read_bytes()) == output.digest
        assert files[name].stat().st_nlink == 1
        assert not files[name].is_symlink()
    assert not [path for path in root.rglob(".*")]
    manifest = codegen_dir.read_manifest(root)
    assert manifest["files"]["model.onnx"] == built.outputs["model.onnx"].digest
    assert manifest["recipes"]["Load"] == built.actions["Load"].digest


def test_the_options_and_their_origins_are_recorded(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    option = json.loads((root / "option.json").read_text())
    assert option["options"]["float_dtype"] == "mixed"
    assert option["origins"]["float_dtype"] == "direct"
    assert option["origins"]["scheduler"] == "default"
    assert "LayoutPlan: built" in (root / "CLOG.log").read_text()
    details = (root / "glog" / "codegen.INFO.log").read_text()
    assert "options] float_dtype='mixed' (direct)" in details
    assert f"Emit] gave model.vsm.zst {built.outputs['model.vsm.zst'].size} bytes" in details
    assert codegen_dir.read_manifest(root)["command"]


def test_the_page_tells_of_every_file():
    """docs/codegen_dir.md has a row for each file that a compile writes, and for no other."""
    page = (Path(__file__).parents[2] / "docs" / "codegen_dir.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|", page, re.MULTILINE)
    given = {
        (artifact.name, phase.name) for phase in PHASES.values() if phase.name != "Run" for artifact in phase.gives
    }
    whole = {(name, "all") for name in ("manifest.json", "option.json", "CLOG.log", "glog/codegen.INFO.log")}
    assert set(rows) == given | whole and len(rows) == len(set(rows))


def test_a_moved_directory_is_good(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    os.rename(root, tmp_path / "moved")
    assert codegen_dir.verify(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copied")
    assert codegen_dir.verify(tmp_path / "copied")
    for path in (tmp_path / "copied").rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes()


def test_an_existing_directory_is_updated_and_stale_files_go(store, built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen", {"extra.txt": b"of the first compile"})
    (root / "checkpoint.pt").write_text("mine")
    before = (root / "exported.onnx").stat().st_mtime_ns
    other = build_chain(TRACED, {"float_dtype": "half"}, store=store, label="add", phases=("Schedule",))
    codegen_dir.materialise(other, root)
    assert not (root / "extra.txt").exists()
    assert not (root / "model.app.zst").exists()
    assert (root / "checkpoint.pt").read_text() == "mine"
    assert (root / "exported.onnx").stat().st_mtime_ns == before
    assert digest_of((root / "plan.json").read_bytes()) == other.outputs["plan.json"].digest
    codegen_dir.verify(root)


def test_a_changed_file_is_named_and_a_new_compile_puts_it_right(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    invariants.flip(root / "model.app.zst", 7)
    digest = built.outputs["model.app.zst"].digest
    with pytest.raises(
        CodegenDirError, match=rf"model.app.zst was changed or is damaged: .* the compile gave {digest}"
    ):
        codegen_dir.verify(root)
    codegen_dir.materialise(built, root)
    codegen_dir.verify(root)


def test_a_missing_file_is_named(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    (root / "signature.json").unlink()
    with pytest.raises(CodegenDirError, match=r"signature.json is missing \(SHA-256 [0-9a-f]{64}\); compile again"):
        codegen_dir.verify(root)


def test_two_files_exchanged_are_named(built, tmp_path):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    os.rename(root / "model.onnx", root / "x")
    os.rename(root / "exported.onnx", root / "model.onnx")
    os.rename(root / "x", root / "exported.onnx")
    with pytest.raises(CodegenDirError, match=r"onnx was changed"):
        codegen_dir.verify(root)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is no codegen_dir, or its compile did not finish"),
        (b"{", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "is not a manifest"),
        (b'{"files": {}, "format": 99}', "has format 99, this version reads 1"),
        (b'{"files": {"../../etc/passwd": "0"}, "format": 1}', "is no name for an artifact"),
    ],
)
def test_a_bad_manifest_is_said(built, tmp_path, content, told):
    root = codegen_dir.materialise(built, tmp_path / "codegen")
    (root / "manifest.json").unlink()
    if content is not None:
        (root / "manifest.json").write_bytes(content)
    with pytest.raises(Exception, match=told):
        codegen_dir.verify(root)
    codegen_dir.materialise(built, root)
    codegen_dir.verify(root)


def test_a_planted_link_is_replaced_not_followed(built, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    root = tmp_path / "codegen"
    root.mkdir()
    (root / "model.onnx").symlink_to(victim)
    codegen_dir.materialise(built, root)
    assert victim.read_text() == "precious"
    codegen_dir.verify(root)


def test_a_file_in_the_way_is_said(built, tmp_path):
    (tmp_path / "codegen").write_text("a file")
    with pytest.raises(CodegenDirError, match=r"codegen: "):
        codegen_dir.materialise(built, tmp_path / "codegen")


def test_temporary_files_of_a_killed_process_go(built, tmp_path):
    root = tmp_path / "codegen"

    def killed():
        from mlsdk.store import failpoints

        failpoints.configure("directory.file_written:3:kill")
        codegen_dir.materialise(built, root)

    assert invariants.in_child(killed) == 9
    assert list(root.rglob(".*"))
    codegen_dir.materialise(built, root)
    assert not list(root.rglob(".*"))
    codegen_dir.verify(root)
