"""The import rules of docs/architecture.md, as a table, checked on the source text of every file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("pipeline", "tasks", "device", "store", "cli", "workflows")
PUBLIC = "mlsdk"  # the modules of the public API, those that stand in mlsdk/ itself

# Every folder may import mlsdk.errors: the classes that a user sees, which import nothing.
FREE = ("mlsdk.errors",)

# The facts of the chip that the compiler and the machine share: numbers and tables, no machinery.
TABLES = ("mlsdk.device.spec", "mlsdk.device.isa", "mlsdk.device.timing")


@dataclass(frozen=True)
class Rule:
    """What the files of a folder may import of ours, beside the folder itself."""

    folder: str
    may: tuple[str, ...]


RULES = (
    Rule("device", ()),
    Rule("store", ()),
    Rule("pipeline/ir", TABLES),
    Rule("pipeline/ops", ("mlsdk.pipeline.ir", *TABLES)),
    Rule("pipeline/<phase>", ("mlsdk.pipeline.ir", "mlsdk.pipeline.ops", *TABLES)),  # never another phase
    Rule("mlsdk/runtime", ("mlsdk.device", "mlsdk.pipeline.ir")),
    Rule("tasks", ("mlsdk.store", "mlsdk.device", "mlsdk.pipeline", "mlsdk.runtime")),
    Rule("mlsdk", ("mlsdk",)),
    Rule("workflows", ("mlsdk",)),
    Rule("cli", ("mlsdk.store", "mlsdk.device", "mlsdk.tasks")),
)

# Luigi and the store meet the phases in tasks/ only.
LUIGI_ONLY_IN = ("tasks", "workflows")

# Words that have no place in a file that strangers read: names of package registries and paths of one machine.
FORBIDDEN = {
    "a package registry": r"\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|crates\.io|"
    r"proxy\.golang\.org|repo\.maven\.apache\.org|rubygems\.org|conda\.anaconda\.org|huggingface\.co)\b",
    "a path of one machine": r"(?<![\w.])/" + r"work/(?!\w*\s)|(?<![\w.])/" + "home/[a-z]|/" + "root/",
    "a folder beside the repository": r"\.\./" + "shared",
}


def rule_of(path: Path) -> Rule | None:
    parts = path.relative_to(ROOT).parts
    if parts[0] == "pipeline":
        if len(parts) == 2:  # pipeline/__init__.py
            return Rule("pipeline", ())
        name = f"pipeline/{parts[1]}" if parts[1] in ("ir", "ops") else "pipeline/<phase>"
    else:
        name = "/".join(parts[:2]) if parts[:2] == (PUBLIC, "runtime") else parts[0]
    return next((rule for rule in RULES if rule.folder == name), None)


def python_files() -> list[Path]:
    found = []
    for folder in (*FOLDERS, PUBLIC):
        for path in (ROOT / folder).rglob("*.py"):
            if not any(parent.is_symlink() for parent in path.parents if parent != ROOT):
                found.append(path)
    return sorted(found)


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != PUBLIC:
        parts.insert(0, PUBLIC)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of ours, relative ones made absolute."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            # `from mlsdk.device import spec` imports mlsdk.device.spec; `from mlsdk.device.spec import X` does not
            # import mlsdk.device.spec.X, but saying so does no harm: it is inside.
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def allowed(module: str, own: str, rule: Rule) -> bool:
    inside = (own, *rule.may, *FREE)
    return any((module + ".").startswith(prefix + ".") for prefix in inside)


def own_package(path: Path, rule: Rule) -> str:
    parts = path.relative_to(ROOT).parts
    depth = 2 if parts[0] == "pipeline" and len(parts) > 2 else 1
    if rule.folder == "mlsdk/runtime":
        depth = 2
    return module_of(ROOT.joinpath(*parts[:depth]) / "__init__.py")


FILES = python_files()


def test_there_are_files_to_check():
    assert {path.relative_to(ROOT).parts[0] for path in FILES} >= {"store", "tasks", "cli", "device", "pipeline"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_folder_may(path):
    rule = rule_of(path)
    assert rule is not None, "a folder without a rule: add it to RULES and to docs/architecture.md"
    wrong = []
    for line, module in imports(path):
        top = module.partition(".")[0]
        if top in FOLDERS:
            wrong.append(f"line {line}: {module} (write mlsdk.{module})")
        elif top == PUBLIC and module != PUBLIC and not allowed(module, own_package(path, rule), rule):
            wrong.append(f"line {line}: {module}")
        elif top == "luigi" and rule.folder not in LUIGI_ONLY_IN:
            wrong.append(f"line {line}: {module} (only in {' and '.join(LUIGI_ONLY_IN)})")
    assert not wrong, f"{path.relative_to(ROOT)} imports what {rule.folder} may not: {'; '.join(wrong)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_root_folder_has_its_link(folder):
    link = ROOT / PUBLIC / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder
    assert (ROOT / folder / "__init__.py").exists()


def test_each_folder_of_the_table_is_in_the_document():
    document = (ROOT / "docs" / "architecture.md").read_text()
    for rule in RULES:
        assert f"`{rule.folder}/`" in document, f"docs/architecture.md has no row for {rule.folder}/"


@pytest.mark.parametrize("package", ["cli", "store", "device", "tasks"])
def test_torch_is_not_imported(package):
    """These are called in loops, or have to say quickly that nothing is to do."""
    code = f"""
import importlib, pkgutil, sys
import mlsdk.{package} as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
for name in ("torch", "onnxscript", "sklearn"):
    assert name not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_line_starts_quickly_because_it_imports_little():
    code = "import sys, mlsdk.cli.main; print(len(sys.modules)); assert 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    return [ROOT / name for name in listed.stdout.split("\0") if name and not (ROOT / name).is_symlink()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_mentions(what):
    pattern = re.compile(FORBIDDEN[what])
    found = []
    for path in tracked_files():
        if path == Path(__file__).resolve() or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, f"{what}: " + "; ".join(found)
