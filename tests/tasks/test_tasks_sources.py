from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from mlsdk.store import digest_of
from mlsdk.tasks import sources
from mlsdk.tasks.errors import WorkflowError


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write modules of a project, and make them importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return tmp_path

    yield write
    for name in [name for name in sys.modules if name.startswith("proj")]:
        del sys.modules[name]


def test_a_module_and_what_it_imports_of_its_project(project):
    project(
        proj_main="""
            import json, numpy
            import proj_other
            def late():
                from proj_pkg.model import Net
                from proj_pkg import shapes
                import torch
        """,
        proj_other="import os.path",
        proj_unused="",
    )
    root = project(**{})
    (root / "proj_pkg").mkdir()
    for name, text in {
        "__init__": "",
        "model": "from . import layers",
        "layers": "",
        "shapes": "",
        "unused": "",
    }.items():
        (root / "proj_pkg" / f"{name}.py").write_text(text)
    found = sources.of_module("proj_main")
    assert sorted(found.modules) == [
        "proj_main",
        "proj_other",
        "proj_pkg",
        "proj_pkg.layers",
        "proj_pkg.model",
        "proj_pkg.shapes",
    ]
    assert found.modules["proj_other"] == digest_of(b"import os.path")
    assert found.distributions["torch"].startswith("2.")
    assert set(found.distributions) == {"torch", "numpy"}
    assert not [name for name in sys.modules if name.startswith("proj_")]


def test_a_changed_import_changes_the_digest(project):
    root = project(proj_a="import proj_b", proj_b="x = 1")
    before = sources.of_module("proj_a")
    (root / "proj_b.py").write_text("x = 22")
    after = sources.of_module("proj_a")
    assert before.modules["proj_a"] == after.modules["proj_a"]
    assert before.modules["proj_b"] != after.modules["proj_b"]


def test_modules_that_no_statement_names_can_be_given(project):
    project(proj_c="import importlib; importlib.import_module('proj_d')", proj_d="")
    assert list(sources.of_module("proj_c").modules) == ["proj_c"]
    assert sorted(sources.of_module("proj_c", ("proj_d",)).modules) == ["proj_c", "proj_d"]


def test_our_own_modules_count_by_version_and_workflows_by_source(project):
    project(proj_e="from mlsdk.tasks.workflow import Workflow\nimport mlsdk")
    assert list(sources.of_module("proj_e").modules) == ["proj_e"]
    assert "mlsdk.workflows" in sources.of_module("mlsdk.workflows").modules


def test_a_distribution_of_another_name_is_found(project):
    project(proj_f="import sklearn.datasets, yaml_that_is_not_there")
    assert list(sources.of_module("proj_f").distributions) == ["scikit-learn"]


def test_what_cannot_be_read_is_said(project):
    project(proj_g="def broken(:")
    with pytest.raises(WorkflowError, match=r"proj_g.py: .*; correct the file"):
        sources.of_module("proj_g")
    with pytest.raises(WorkflowError, match="no source file of module proj_nowhere"):
        sources.of_module("proj_nowhere")


def test_a_script_is_its_own_source(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from mlsdk.tasks import sources\nprint(sorted(sources.of_module('__main__').modules))")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['__main__']"
