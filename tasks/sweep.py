"""One workflow under several presets, or with several values of a parameter, as one Luigi task.

mlsdk build digits --sweep preset=O0,O1,O2 --jobs 2
luigi --module mlsdk.tasks.sweep Sweep --workflow 'mlsdk.workflows.digits:Digits' --parameter preset --values O0,O1,O2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import luigi

from mlsdk.tasks import options as option_table
from mlsdk.tasks.content import ContentRegister, InstanceParameter
from mlsdk.tasks.errors import WorkflowError
from mlsdk.tasks.parameters import wrong
from mlsdk.tasks.workflow import Workflow


class Sweep(luigi.WrapperTask, metaclass=ContentRegister):
    """The workflow, once for each value; what they have in common is computed once."""

    workflow = InstanceParameter(description="the workflow: module:Class?{...}")
    parameter = luigi.Parameter(default="preset", description="a parameter of the workflow, or a compile option")
    values = luigi.Parameter(default=",".join(("O0", "O1", "O2", "O3", "O4")), description="separated by commas")

    def variants(self) -> dict[str, Workflow]:
        """The workflows by their value."""
        return {text: varied(self.workflow, self.parameter, text) for text in str(self.values).split(",") if text}

    def requires(self) -> list[luigi.Task]:
        return list(self.variants().values())


def varied(workflow: Workflow, name: str, text: str) -> Workflow:
    """The same workflow with another value of a parameter, or of a compile option."""
    parameters = dict(workflow.get_params())
    values: dict[str, Any] = {key: getattr(workflow, key) for key in parameters}
    if name in parameters and name != "options":
        try:
            values[name] = parameters[name].parse(text)
        except (ValueError, TypeError):
            raise wrong(type(workflow), name, parameters[name], text) from None
    elif name in option_table.OPTIONS:
        values["options"] = {**workflow.options, name: option_table.from_text(text)}
    else:
        known = [*parameters, *option_table.OPTIONS]
        raise WorkflowError(
            f"sweep: {type(workflow).__name__} has no parameter and no option {name!r}"
            f"{option_table.nearest(name, known)}"
        )
    return type(workflow)(**values)


def product(workflow: Workflow, sweeps: Mapping[str, Sequence[str]]) -> dict[str, Workflow]:
    """Every combination, named by its values: `preset=O1 batch=8`."""
    found = {"": workflow}
    for name, texts in sweeps.items():
        found = {
            f"{title} {name}={text}".strip(): varied(one, name, text) for title, one in found.items() for text in texts
        }
    return found
