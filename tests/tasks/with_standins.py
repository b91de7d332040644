"""Run a command with stand-in phases: `python with_standins.py luigi ARGUMENTS` or `mlsdk ARGUMENTS`."""

from __future__ import annotations

import sys

import standins

from mlsdk.tasks import adapters

for name, function in standins.FUNCTIONS.items():
    setattr(adapters, name, function)

command, *arguments = sys.argv[1:]
if command == "luigi":
    from luigi.cmdline import luigi_run

    luigi_run(arguments)
else:
    from mlsdk.cli.main import main

    main(arguments)
