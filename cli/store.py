"""`mlsdk store`: what is in the store, why, and whether it is whole. Each verb takes --json."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import examples, exit_codes, reasons, texts
from mlsdk.errors import OptionError

if TYPE_CHECKING:
    from mlsdk.store import Store

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog=examples.of("store"))
@click.option("--store", "path", metavar="PLACE", help="The store; default $MLSDK_STORE or ~/.cache/open-mlsdk.")
@click.pass_context
def store(context: click.Context, path: str | None) -> None:
    """Look into the artifact store, check it, clean it.

    REF is the start of a key or of a digest, KEY:ARTIFACT, a tag, or words: LABEL, LABEL/PHASE, LABEL/PHASE/ARTIFACT.
    A LABEL is the name of a workflow or of a compile; @12, @12/PHASE, @12/PHASE/ARTIFACT name the build with number 12
    (`mlsdk store log` shows the numbers).
    """
    context.obj = path
    # What the store has to say (a damaged object, a rebuilt index) belongs on standard error, as one line each.
    logging.getLogger("mlsdk.store").addHandler(_handler())


def _handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("mlsdk: %(message)s"))
    return handler


def opened(context: click.Context) -> Store:
    """The store of this command; it is not created by looking."""
    from mlsdk import store as stores
    from mlsdk.store import NotAStore

    where = stores.location(context.obj)
    if not where.is_dir():
        raise NotAStore(f"there is no store at {where}; build something first, or set MLSDK_STORE")
    found = stores.open(where)
    context.call_on_close(found.close)
    return found


@store.command(epilog=examples.of("store ls"))
@click.option("--kind", help="Only this kind: onnx, json, vsm, ...")
@click.option("--phase", help="Only this phase.")
@click.option("--label", help="Only this workflow or function.")
@click.option("--name", help="Only artifacts of this name.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="Only with this compile option in the key."
)
@click.option("--newer", metavar="AGE", help="Only what is newer: 15m, 3h, 7d.")
@click.option("--older", metavar="AGE", help="Only what is older.")
@click.option("--larger", metavar="SIZE", help="Only artifacts of at least this size: 500, 64KiB, 1MiB.")
@click.option("-n", "--limit", type=int, default=50, show_default=True, help="How many; 0 for all.")
@as_json
@click.pass_context
def ls(
    context: click.Context,
    limit: int,
    newer: str | None,
    older: str | None,
    larger: str | None,
    options: tuple[str, ...],
    as_json: bool,
    **only: Any,
) -> None:
    """List artifacts, the newest first."""
    from mlsdk.store import query

    only.update(since=_ago(newer), until=_ago(older), larger=texts.parse_size(larger) if larger else None)
    wanted = dict(_assignment(text) for text in options)
    found = opened(context)
    rows = query.ls(found, **only, options=wanted, limit=limit or None)
    if not rows and only["label"]:
        query.check_label(found, only["label"])
    if not rows and only["kind"] and only["kind"] not in (kinds := query.kinds(found)):
        raise OptionError(f"--kind {only['kind']}: there is no such kind here; there are {', '.join(kinds) or 'none'}")
    if as_json:
        texts.echo_json(rows)
        return
    texts.table(
        ("created", "label", "phase", "name", "size", "digest", "key"),
        (
            (
                texts.moment(row["created"]),
                row["label"],
                row["phase"],
                row["name"],
                texts.size(row["size"]),
                texts.short(row["digest"]),
                texts.short(row["recipe"]),
            )
            for row in rows
        ),
        right=(4,),
    )


@store.command(epilog=examples.of("store show"))
@click.argument("ref")
@as_json
@click.pass_context
def show(context: click.Context, ref: str, as_json: bool) -> None:
    """Show a result: what it was made from, with which options, when, and what it gave."""
    from mlsdk.store import query

    facts = query.show(opened(context), ref)
    if as_json:
        texts.echo_json(facts)
        return
    click.echo(f"{facts['phase']} (version {facts['version']}) of {texts.clean(facts['label']) or 'a function'}")
    if facts["also"]:
        click.echo(f"         {texts.clean(ref)} is its newest result; also {texts.clean(ref)}/PHASE, "
                   f"PHASE one of {texts.clean(', '.join(facts['also']))}")  # fmt: skip
    click.echo(f"key      {facts['recipe']}")
    click.echo(f"created  {texts.moment(facts['created'])} in {facts['seconds']:.2f} s on {facts['host']}")
    for title in ("options", "inputs", "tools"):
        if facts[title]:
            click.echo(title)
            for name, value in sorted(facts[title].items()):
                click.echo(f"  {texts.clean(name)} = {texts.clean(value)}")
    click.echo("outputs")
    rows = [
        (f"  {one['name']}", one["kind"], texts.size(one["size"]), texts.size(one["stored"]), one["digest"])
        for one in facts["outputs"]
    ]
    texts.table(("  name", "kind", "size", "on disk", "digest"), rows, right=(2, 3))


@store.command(epilog=examples.of("store cat"))
@click.argument("ref")
@click.option("--text", "as_text", is_flag=True, help="As text, unpacked; on a terminal it is shown so anyway.")
@as_json
@click.pass_context
def cat(context: click.Context, ref: str, as_text: bool, as_json: bool) -> None:
    """Write an artifact to standard output, verified."""
    from mlsdk.store import query

    found = opened(context)
    data = query.cat(found, ref)
    if as_json:
        facts = query.find(found, ref)
        texts.echo_json({"digest": facts.digest, "size": len(data), "text": _text(data), "base64": _base64(data)})
    elif as_text or sys.stdout.isatty():
        click.echo(_readable(data, ref), nl=False)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@store.command(epilog=examples.of("store why"))
@click.argument("target", default="")
@as_json
@click.pass_context
def why(context: click.Context, target: str, as_json: bool) -> None:
    """Why was this built again? TARGET: a REF; without it, the newest build."""
    from mlsdk.store import query

    answers = query.why(opened(context), target)
    if as_json:
        texts.echo_json(answers)
        return
    reasons.show(answers)


@store.command(epilog=examples.of("store log"))
@click.option("--label", help="Only this workflow or function.")
@click.option("--newer", metavar="AGE", help="Only builds of the last 3h, 7d.")
@click.option("--preset", help="Only with this preset: O3.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Only with this compile option.")
@click.option("--status", type=click.Choice(["ok", "failed", "interrupted", "running"]), help="Only these.")
@click.option("--phases", "with_phases", is_flag=True, help="A line for each phase.")
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="How many builds; 0 for all.")
@as_json
@click.pass_context
def log(
    context: click.Context,
    label: str | None,
    newer: str | None,
    options: tuple[str, ...],
    with_phases: bool,
    limit: int,
    as_json: bool,
    **only: Any,
) -> None:
    """What ran when, how long, with which options, on which board, and how many steps it will take."""
    from mlsdk.store import query

    wanted = dict(_assignment(text) for text in options)
    found = opened(context)
    builds = query.log(found, label, limit or None, since=_ago(newer), options=wanted, **only)
    if not builds and label:
        query.check_label(found, label)
    if as_json:
        texts.echo_json(builds)
        return
    for build in builds:
        _print_build(build, with_phases)
    if not builds:
        click.echo("mlsdk: no build is like that; ask for less (`mlsdk store log -n 5` shows the newest)", err=True)


def _print_build(build: dict[str, Any], with_phases: bool) -> None:
    built = [phase["phase"] for phase in build["phases"] if phase["outcome"] == "built"]
    cached = len(build["phases"]) - len(built)
    given = [build["preset"] or "", *(f"{name}={value}" for name, value in sorted(build["options"].items()))]
    steps = [f"{value:,.0f} steps" for value in build["steps"].values()]
    facts = texts.clean("  ".join(part for part in (*given, build["device"], *steps) if part))
    what = f"built {', '.join(built) or 'nothing'}; {cached} from the store"
    if build["status"] in ("running", "interrupted") and not build["phases"]:
        what = "not recorded" if build["status"] == "interrupted" else f"process {build['pid']} of {build['host']}"
    click.echo(
        f"@{build['id']}  {texts.moment(build['started'])}  {texts.clean(build['label']):<16} {build['status']:<11} "
        f"{build['seconds']:7.2f} s  {what}"
        f"{'  ' if facts else ''}{facts}"
    )
    if build["error"]:
        click.echo(f"    {texts.clean(build['error'])}")
    for phase in build["phases"] if with_phases else ():
        reason = f"  {texts.clean(phase['reason'])}" if phase["reason"] else ""
        click.echo(f"    {phase['phase']:<14} {phase['outcome']:<8} {phase['seconds']:8.3f} s{reason}")


@store.command(epilog=examples.of("store diff"))
@click.argument("a")
@click.argument("b")
@as_json
@click.pass_context
def diff(context: click.Context, a: str, b: str, as_json: bool) -> None:
    """What differs between two builds or results: options, inputs, artifacts, steps, seconds.

    A and B: @12, a LABEL (its newest build), or any other REF, which is compared with all that it was made from.
    """
    from mlsdk.store import compare

    found = compare.diff(opened(context), a, b)
    if as_json:
        texts.echo_json(found)
        return
    for side in ("a", "b"):
        facts = found[side]
        build = f"@{facts['build']} " if facts["build"] else ""
        click.echo(f"{side}: {build}{texts.clean(facts['label'])} {texts.moment(facts['started'])} "
                   f"{facts['seconds']:.2f} s")  # fmt: skip
    for title in ("options", "inputs"):
        for row in found[title]:
            where = f"{row['phase']} " if row["phase"] else ""
            click.echo(f"{where}{texts.clean(row['part'])}: {texts.value(row['a'])} -> {texts.value(row['b'])}")
    for row in found["numbers"]:
        click.echo(f"{texts.clean(row['artifact'])} {texts.clean(row['name'])}: {_change(row['a'], row['b'])}")
    if found["a"]["build"] and found["b"]["build"]:
        click.echo(f"seconds of the build: {_change(found['a']['seconds'], found['b']['seconds'])}")
    for row in found["seconds"]:
        cached = [row["outcome_a"] == "cached", row["outcome_b"] == "cached"]
        if any(cached) and not all(cached):
            one, other = (
                "from the store" if row[f"outcome_{side}"] == "cached" else f"{row[side]:,.6g}" for side in "ab"
            )
            click.echo(f"{row['phase']} seconds: {one} -> {other}")
        elif not any(cached):
            click.echo(f"{row['phase']} seconds: {_change(row['a'], row['b'])}")
    for row in found["artifacts"]:
        sizes = f"{texts.size(row['size_a'])} -> {texts.size(row['size_b'])}"
        click.echo(
            f"{row['phase']} {texts.clean(row['name'])}: {texts.value(row['a'])} -> {texts.value(row['b'])} ({sizes})"
        )
    for side in ("a", "b"):
        if found[f"only_{side}"]:
            click.echo(f"only in {side}: {', '.join(found[f'only_{side}'])}")


def _change(one: float | None, other: float | None) -> str:
    """Two numbers, and by how much the second is more."""
    shown = " -> ".join("absent" if value is None else f"{value:,.6g}" for value in (one, other))
    return f"{shown} ({(other - one) / one:+.1%})" if one and other is not None else shown


@store.command(epilog=examples.of("store tag"))
@click.argument("name", required=False)
@click.argument("ref", required=False)
@click.option("--delete", is_flag=True, help="Take the name away.")
@as_json
@click.pass_context
def tag(context: click.Context, name: str | None, ref: str | None, delete: bool, as_json: bool) -> None:
    """Give a result a NAME, so that it is never collected; without arguments, list the names."""
    from mlsdk.store import tags

    found = opened(context)
    if name is None:
        rows = tags.listed(found)
    elif delete:
        tags.remove(found, name)
        rows = []
    elif ref is None:
        raise click.UsageError("give NAME and REF, or NAME --delete, or nothing for the list")
    else:
        rows = [tags.put(found, name, ref)]
    if as_json:
        texts.echo_json(rows)
    elif rows:
        shown = ((row["name"], row["label"] or "", row["phase"] or "gone", row["recipe"]) for row in rows)
        texts.table(("tag", "label", "phase", "key"), shown)


@store.command(epilog=examples.of("store export"))
@click.argument("ref")
@click.argument("file", type=click.Path(dir_okay=False))
@as_json
@click.pass_context
def export(context: click.Context, ref: str, file: str, as_json: bool) -> None:
    """Write a build or a result, and everything that it was made from, into one FILE."""
    from mlsdk.store import parcel

    facts = parcel.export(opened(context), ref, file)
    if as_json:
        texts.echo_json(facts)
    else:
        click.echo(f"{texts.clean(facts['path'])}: {facts['results']} results, {facts['objects']} objects, "
                   f"{texts.size(facts['file'])}")  # fmt: skip


@store.command("import", epilog=examples.of("store import"))
@click.argument("file", type=click.Path(dir_okay=False))
@as_json
@click.pass_context
def import_(context: click.Context, file: str, as_json: bool) -> None:
    """Take in a FILE of `mlsdk store export`; every byte is verified before anything is written."""
    from mlsdk import store as stores
    from mlsdk.store import parcel

    with stores.open(context.obj) as found:  # a new store is created: that is what an import is for
        facts = parcel.take_in(found, file)
    if as_json:
        texts.echo_json(facts)
    else:
        click.echo(f"{facts['new']} new results of {facts['results']}: {texts.clean(', '.join(facts['labels']))}")


@store.command(epilog=examples.of("store query"))
@click.argument("select")
@click.option("--seconds", type=click.FloatRange(0.01, 3600), default=10.0, show_default=True, help="Time limit.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="How many rows.")
@as_json
@click.pass_context
def query(context: click.Context, select: str, seconds: float, limit: int, as_json: bool) -> None:
    """Ask with one SELECT over four views; nothing can be written.

    \b
    artifacts         name kind size stored phase workflow created digest key
    actions           key phase workflow created seconds options inputs host pid product
    runs              build workflow program phase outcome reason seconds started
                      build_seconds status device preset options key host command
    node_simulations  op steps dram_lw node

    Times are seconds since 1970. Example:
    mlsdk store query "SELECT phase, sum(seconds) FROM runs GROUP BY phase"
    """
    from mlsdk.store import sql

    found = sql.run(opened(context), select, seconds, limit)
    if as_json:
        texts.echo_json([dict(zip(found["columns"], row)) for row in found["rows"]])
    else:
        texts.table(found["columns"], ([str(cell) for cell in row] for row in found["rows"]))
    if found["more"]:
        click.echo(f"mlsdk: only the first {limit} rows; give --limit", err=True)


@store.command(epilog=examples.of("store deps"))
@click.argument("ref")
@click.option("--down", is_flag=True, help="What was made from it, instead of what it was made from.")
@click.option("--depth", type=click.IntRange(min=1), default=32, show_default=True, help="How many steps.")
@click.option("--dot", "as_dot", is_flag=True, help="Print a graph for Graphviz.")
@as_json
@click.pass_context
def deps(context: click.Context, ref: str, down: bool, depth: int, as_dot: bool, as_json: bool) -> None:
    """What a result was made from, as a tree."""
    from mlsdk.store import query

    tree = query.deps(opened(context), ref, down, depth)
    if as_json:
        texts.echo_json(tree)
    elif as_dot:
        click.echo(query.dot(tree))
    else:
        _print_tree(tree, "", "down" if down else "up")


@store.command(epilog=examples.of("store du"))
@as_json
@click.pass_context
def du(context: click.Context, as_json: bool) -> None:
    """Sizes by kind, and what sharing and compression save."""
    from mlsdk.store import query

    facts = query.du(opened(context))
    if as_json:
        texts.echo_json(facts)
        return
    rows = [(kind["kind"], str(kind["artifacts"]), texts.size(kind["size"])) for kind in facts["kinds"]]
    texts.table(
        ("kind", "artifacts", "size"), [*rows, ("all", str(facts["artifacts"]), texts.size(facts["size"]))], (1, 2)
    )
    click.echo(
        f"{facts['actions']} results, {facts['objects']} objects, {texts.size(facts['stored'])} on disk; "
        f"sharing saves {texts.size(facts['saved_by_sharing'])}, "
        f"compression {texts.size(facts['saved_by_compression'])}"
    )
    click.echo(
        f"index {texts.size(facts['index'])}, {facts['memories']} remembered answers, "
        f"quarantine {texts.size(facts['quarantine'])}, temporary {texts.size(facts['temporary'])}; {facts['root']}"
    )


@store.command(epilog=examples.of("store gc"))
@click.option(
    "--grace",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Keep what was used since so many collections.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@as_json
@click.pass_context
def gc(context: click.Context, grace: int, dry_run: bool, as_json: bool) -> None:
    """Delete what nothing has used for a while."""
    import dataclasses

    from mlsdk.store import gc as collector

    report = collector.collect(opened(context), grace, dry_run)
    if as_json:
        texts.echo_json(dataclasses.asdict(report))
        return
    words = "would delete" if dry_run else "deleted"
    click.echo(
        f"{words} {len(report.deleted)} results, {report.objects} objects, {report.leftovers} leftovers, "
        f"{report.memories} remembered answers, "
        f"{texts.size(report.freed)}; kept {report.kept} results, {report.young_leftovers} young leftovers"
    )


@store.command(epilog=examples.of("store fsck"))
@click.option("--repair", is_flag=True, help="Move what is bad to quarantine/, and put the rows right.")
@click.option("--rebuild", is_flag=True, help="Make the index again from the manifests when it is damaged.")
@as_json
@click.pass_context
def fsck(context: click.Context, repair: bool, rebuild: bool, as_json: bool) -> None:
    """Check every object, row, manifest and file."""
    import dataclasses

    from mlsdk import store as stores
    from mlsdk.store import fsck as checker

    if rebuild:
        count, aside = checker.rebuild_index(stores.location(context.obj))
        where = f"; the old index is {aside}" if aside else ""
        click.echo(f"index: {count} results{where}", err=as_json)
    report = checker.check(opened(context), repair)
    if as_json:
        texts.echo_json({**dataclasses.asdict(report), "clean": report.clean})
    else:
        _print_report(report)
    if not report.clean:
        context.exit(exit_codes.FOUND)


def _print_report(report: Any) -> None:
    for line in report.index:
        click.echo(f"index      {texts.clean(line)}")
    for finding in report.findings:
        done = f" ({finding.done})" if finding.done else ""
        click.echo(f"{finding.kind:<10} {texts.clean(finding.what)}: {texts.clean(finding.detail)}{done}")
    speed = report.size / report.seconds / 1e6 if report.seconds else 0.0
    verdict = "clean" if report.clean else "NOT clean; `mlsdk store fsck --repair` puts it right"
    click.echo(f"{report.objects} objects, {texts.size(report.size)} read at {speed:.0f} MB/s: {verdict}")


def _print_tree(node: dict[str, Any], indent: str, direction: str) -> None:
    more = " (shown above)" if node.get("seen") else ""
    click.echo(f"{indent}{node['phase']} {texts.short(node['recipe'])} {texts.clean(node['label'])}{more}".rstrip())
    for edge in node.get(direction, ()):
        click.echo(f"{indent}  {texts.clean(edge['name'])} {texts.short(edge['digest'])}")
        if edge["action"] is not None:
            _print_tree(edge["action"], indent + "    ", direction)


def _ago(age: str | None) -> float | None:
    return time.time() - texts.parse_age(age) if age else None


def _assignment(text: str) -> tuple[str, Any]:
    import json

    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _readable(data: bytes, ref: str) -> str:
    """An artifact as text, unpacked where it is packed."""
    from mlsdk.cli.packed import unpacked

    text = _text(unpacked(data, ref))
    if text is None or "\0" in text:
        raise OptionError(f"{ref} is no text ({len(data):,} bytes); redirect it into a file, without --text")
    return text


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str | None:
    import base64

    return None if _text(data) is not None else base64.b64encode(data).decode("ascii")
