"""What the planner decided, as pages: layout.html, layout_plan_history.html, time_slice.html and time_slice.txt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from mlsdk.pipeline.ir.placed import Placed
from mlsdk.pipeline.layout.planner import Event

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, keep_trailing_newline=True
)


def _page(title: str, intro: str, head: Sequence[str], rows: Sequence[Sequence[object]], code=(), numbers=()) -> bytes:
    template = _PAGES.get_template("page.html")
    return template.render(title=title, intro=intro, head=head, rows=rows, code=code, numbers=numbers).encode()


def layout_page(placed: Placed) -> bytes:
    """Every value with its final layout."""
    rows = [
        (
            v.name,
            v.origin,
            v.dtype,
            v.device_dtype,
            "x".join(map(str, v.shape)) or "scalar",
            str(v.layout),
            v.image.addresses,
            v.image.group_size,
        )
        for v in placed.values.values()
    ]
    head = ("value", "origin", "dtype", "on the board", "shape", "layout", "LM LW per PE", "DRAM LW per group")
    intro = "The layout of every value after planning. It says on which L2B, L1B, MAB, PE, word and LM address each element lies."
    return _page("Layouts", intro, head, rows, code=("value", "layout"), numbers=("LM LW per PE", "DRAM LW per group"))


def history_page(history: Sequence[Event]) -> bytes:
    """The planner's decisions in order."""
    rows = [(i, e.value, e.layout, e.reason) for i, e in enumerate(history, 1)]
    intro = "The decisions of the layout planner in the order in which they were made."
    return _page(
        "Layout plan history", intro, ("#", "value", "layout", "why"), rows, code=("value", "layout"), numbers=("#",)
    )


def time_slice_page(placed: Placed) -> bytes:
    """The layouts before anything is cut into tiles."""
    rows = [(v.name, str(v.layout), v.image.addresses, v.image.slices) for v in placed.values.values()]
    intro = (
        "The layouts just before values are cut in time. An LM bank holds 2,048 long words; an operator brings a larger "
        "value through it in tiles."
    )
    head = ("value", "layout", "LM LW per PE", "time slices")
    return _page("Time slices", intro, head, rows, code=("value", "layout"), numbers=("LM LW per PE", "time slices"))


def time_slice_text(placed: Placed) -> bytes:
    """The same graph as text, one node a line."""
    return ("\n".join(node_lines(placed)) + "\n").encode()


def node_lines(placed: Placed) -> list[str]:
    lines = []
    for p in placed.nodes:
        inputs = ", ".join(f"{n}: {_type(placed, n)}" for n in p.node.inputs if n)
        outputs = ", ".join(f"{n}: {_type(placed, n)}" for n in p.node.outputs if n)
        how = p.emitter + (f":{p.kernel}" if p.kernel else "")
        lines.append(f"{p.node.name} = {p.node.op}[{how}]({inputs}) -> {outputs}")
    return lines


def _type(placed: Placed, name: str) -> str:
    v = placed.values[name]
    return f"{v.device_dtype}{list(v.shape)}/{v.layout}"
