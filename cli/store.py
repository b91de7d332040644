"""`mlsdk store`: what is in the store, why, and whether it is whole. Each verb takes --json."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from mlsdk.cli import exit_codes, texts

if TYPE_CHECKING:
    from mlsdk.store import Store

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
@click.option("--store", "path", metavar="DIR", help="The store; default $MLSDK_STORE or ~/.cache/open-mlsdk.")
@click.pass_context
def store(context: click.Context, path: str | None) -> None:
    """Look into the artifact store, check it, clean it.

    REF is the start of a key or of a digest, KEY:ARTIFACT, or words: LABEL, LABEL/PHASE, LABEL/PHASE/ARTIFACT.
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


@store.command()
@click.option("--kind", help="Only this kind: onnx, json, vsm, ...")
@click.option("--phase", help="Only this phase.")
@click.option("--label", help="Only this workflow or function.")
@click.option("--name", help="Only artifacts of this name.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="Only with this compile option in the key."
)
@click.option("--newer", metavar="AGE", help="Only what is newer: 15m, 3h, 7d.")
@click.option("-n", "--limit", type=int, default=50, show_default=True, help="How many; 0 for all.")
@as_json
@click.pass_context
def ls(
    context: click.Context, limit: int, newer: str | None, options: tuple[str, ...], as_json: bool, **only: Any
) -> None:
    """List artifacts, the newest first."""
    from mlsdk.store import query

    since = time.time() - texts.parse_age(newer) if newer else None
    wanted = dict(_assignment(text) for text in options)
    rows = query.ls(opened(context), **only, since=since, options=wanted, limit=limit or None)
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


@store.command()
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


@store.command()
@click.argument("ref")
@as_json
@click.pass_context
def cat(context: click.Context, ref: str, as_json: bool) -> None:
    """Write an artifact to standard output, verified."""
    from mlsdk.store import query

    found = opened(context)
    data = query.cat(found, ref)
    if as_json:
        facts = query.find(found, ref)
        texts.echo_json({"digest": facts.digest, "size": len(data), "text": _text(data), "base64": _base64(data)})
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@store.command()
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
    for answer in answers:
        title = f"{answer['phase']} of {texts.clean(answer['label']) or 'a function'}"
        if answer["outcome"] == "cached":
            when = f", built {texts.moment(answer['built_at'])}" if answer["built_at"] else ""
            click.echo(f"{title}: from the store{when}")
        else:
            click.echo(f"{title}: {answer['outcome']} {texts.moment(answer['at'])}")
        for change in answer["changes"]:
            before, after = (_value(change[side]) for side in ("before", "after"))
            click.echo(f"    {texts.clean(change['part'])}: {before} -> {after}")
        if answer["reason"] and not answer["changes"]:
            click.echo(f"    because {texts.clean(answer['reason'])}")


@store.command()
@click.option("--label", help="Only this workflow or function.")
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="How many builds; 0 for all.")
@as_json
@click.pass_context
def log(context: click.Context, label: str | None, limit: int, as_json: bool) -> None:
    """What ran when, and how long."""
    from mlsdk.store import query

    builds = query.log(opened(context), label, limit or None)
    if as_json:
        texts.echo_json(builds)
        return
    for build in builds:
        built = [phase["phase"] for phase in build["phases"] if phase["outcome"] == "built"]
        cached = len(build["phases"]) - len(built)
        click.echo(
            f"{texts.moment(build['started'])}  {texts.clean(build['label']):<16} {build['status']:<11} "
            f"{build['seconds']:7.2f} s  built {', '.join(built) or 'nothing'}; {cached} from the store"
        )
        if build["error"]:
            click.echo(f"    {texts.clean(build['error'])}")


@store.command()
@click.argument("ref")
@click.option("--down", is_flag=True, help="What was made from it, instead of what it was made from.")
@click.option("--dot", "as_dot", is_flag=True, help="Print a graph for Graphviz.")
@as_json
@click.pass_context
def deps(context: click.Context, ref: str, down: bool, as_dot: bool, as_json: bool) -> None:
    """What a result was made from, as a tree."""
    from mlsdk.store import query

    tree = query.deps(opened(context), ref, down)
    if as_json:
        texts.echo_json(tree)
    elif as_dot:
        click.echo(query.dot(tree))
    else:
        _print_tree(tree, "", "down" if down else "up")


@store.command()
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


@store.command()
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
        f"{texts.size(report.freed)}; kept {report.kept} results, {report.young_leftovers} young leftovers"
    )


@store.command()
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


def _value(value: Any) -> str:
    from mlsdk.store.digest import is_digest

    if value is None:
        return "absent"
    return texts.short(value) if is_digest(value) else texts.clean(value)


def _assignment(text: str) -> tuple[str, Any]:
    import json

    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str | None:
    import base64

    return None if _text(data) is not None else base64.b64encode(data).decode("ascii")
