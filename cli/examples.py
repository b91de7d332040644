"""What `--help` shows below the options: command lines that people want, with what they do."""

from __future__ import annotations

# command -> (arguments, what they do); the names in them are those of README.md and docs/
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "bisect": (
        ("/tmp/linear", "the folder of a compile, on random inputs"),
        ("/tmp/linear --inputs batch.npz", "on inputs of your own, by key"),
    ),
    "build": (
        ("digits --preset O3", "compile, without running"),
        ("digits --dry-run", "what would be built, and why"),
        ("train.py --param epochs=2 --jobs 2", "a workflow of your own"),
        ("resnet18 --sweep preset=O0,O1,O2", "three builds; what they share once"),
    ),
    "compare": (
        ("/tmp/linear /tmp/linear_o3", "two folders"),
        ("@41 @57 --all", "two builds of the store, every node"),
    ),
    "dashboard": (
        ("/tmp/linear", "then open the address that it prints"),
        ("/tmp/linear --compare /tmp/linear_o3 --port 0", "two compiles side by side"),
        ("--store", "all builds of $MLSDK_STORE"),
    ),
    "options": (
        ("--preset O3", "what a preset gives"),
        ("--option float_dtype=mixed --json", "with where each value comes from"),
    ),
    "run": (
        ("digits", "train on the host, compile, run on the board"),
        ("digits --preset O3 --codegen-dir /tmp/digits", "keep the artifacts for the dashboard"),
        ("train_digits --device mncore2:0 --json", "on board 0; the summary as JSON"),
    ),
    "store": (
        ("log -n 5", "the newest builds"),
        ("why digits", "why it was built again"),
        ("fsck", "check every byte"),
    ),
    "store cat": (("digits/Emit/model.vsm.zst --text", "the assembly of the newest build"),),
    "store deps": (
        ("digits/Load", "what it was made from"),
        ("digits/Trace --down", "what was made from it"),
    ),
    "store diff": (
        ("@41 @57", "two builds"),
        ("digits resnet18", "the newest ones of two programs"),
    ),
    "store du": (("--json", "as one JSON object"),),
    "store export": (("digits digits.parcel", "everything that it needs, in one file"),),
    "store fsck": (
        ("--repair", "move bad objects aside; they are built again"),
        ("--rebuild", "make a damaged index again"),
    ),
    "store gc": (
        ("--dry-run", "only say what would go"),
        ("--grace 0", "all that nothing uses now"),
    ),
    "store import": (("digits.parcel", "take in what another store exported"),),
    "store log": (
        ("--label digits --newer 7d --preset O3", "last week's builds with O3"),
        ("--phases -n 1", "each phase of the newest, and why it ran"),
        ("--status interrupted", "builds that were killed"),
    ),
    "store ls": (("--kind vsm --newer 1d", "today's assembly"),),
    "store query": (
        (
            '"SELECT phase, sum(seconds) FROM runs GROUP BY phase"',
            "artifacts, actions, runs, node_simulations: docs/store.md",
        ),
    ),
    "store show": (
        ("digits/Schedule", "the newest one"),
        ("@12/Emit", "that of build 12"),
    ),
    "store tag": (
        ("release-1 digits/Load", "it is never collected"),
        ("release-1 --delete", "it may be, again"),
    ),
    "store why": (
        ("digits", "the newest build of a program"),
        ("@12/Emit", "one phase of build 12"),
    ),
    "vsm": (
        ("check program.vsm", "what is wrong with it"),
        ("run program.vsm", "execute it, print its dumps"),
    ),
    "vsm check": (("program.vsm --insert-nops -o mended.vsm", "mend hazards with empty steps"),),
    "vsm fmt": (("-w program.vsm", "in its normal form"),),
    "vsm run": (
        ("program.vsm", "until its end"),
        ("program.vsm --steps 100 --trace steps.json", "a timeline of the first steps"),
    ),
    "vsm stats": (("program.vsm --json", "steps and time"),),
}

# Of `mlsdk --help`.
BEGINNING = """\b
To begin:
  mlsdk run digits                  train, compile and run on the board
  mlsdk build digits --codegen-dir /tmp/digits
  mlsdk dashboard /tmp/digits       look at what was compiled
  mlsdk store log                   what was built so far

\b
Environment:
  MLSDK_STORE   where results are kept (~/.cache/open-mlsdk)
  MLSDK_STATE   where the emulated boards are kept
  MLSDK_DEBUG   1: tracebacks hold our own lines too
  `mlsdk options` lists the compile options and CODEGEN_ variables.

`mlsdk COMMAND --help` has examples."""


def of(command: str) -> str:
    """The epilog of a command. Click leaves lines behind a \\b as they are."""
    rows = [(f"mlsdk {command} {arguments}", what) for arguments, what in EXAMPLES[command]]
    lines = [f"  {line}\n      {what}" for line, what in rows]
    return "\b\nExamples:\n" + "\n".join(lines)
