"""Servers for the tests of shared stores: a PostgreSQL and an S3 of their own, gone when the tests end."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def postgres_programs() -> Path | None:
    """The folder of initdb and postgres, as Debian installs them."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    return Path(found[-1]).parent if found else None


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A new server that listens on a socket only; the part of a URL that names its database."""
    programs = postgres_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="mlsdk-pg-"))
    # The server refuses to run as root.
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/"}
    subprocess.run(
        [*as_user, programs / "initdb", "-D", data, "-U", "mlsdk", "-A", "trust", "-N", "-E", "UTF8"], **quiet
    )
    server = subprocess.Popen(
        [*as_user, programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off",
         "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
         "-c", "max_connections=300", "-c", "shared_buffers=32MB"],
        stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip
    try:
        ready = [programs / "pg_isready", "-q", "-h", folder]
        for _attempt in range(200):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            subprocess.run(["sleep", "0.05"], check=True)
        yield f"postgresql://mlsdk@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)  # at once: nobody wants the data
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """moto's server with one bucket; the endpoint. The environment names it for every S3 client."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    mine = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    try:
        boto3.client("s3").create_bucket(Bucket="stores")
        yield endpoint
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
