"""The files of a board.

    <state>/boards/<name>/epoch        8 bytes: the number of the current generation; a reset begins a new one
    <state>/boards/<name>/reset.lock   held while a reset or a clear changes the generation
    <state>/boards/<name>/config.json  the clocks that were set
    <state>/boards/<name>/g<epoch>/    lock, fill.json, and for each memory <memory>.bin (sparse) and <memory>.pages
    (a byte a page)

Data and lock belong to a generation: whoever holds the old one keeps its files until it notices, and disturbs nobody.
What is damaged is said and never taken for empty. Imports nothing heavy.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import time
from pathlib import Path

from ..errors import DeviceBusy, DeviceStateError
from .lock import Holder, Lock, acquire, is_locked, read_holder

PAGE_BYTES = 65536
#: The format of a generation's files; a newer one is refused.
FORMAT = 1
#: What a generation's memory holds that was never written: kind -> the values that it may have.
FILLS = {"zero": range(1), "pattern": range(2**64), "random": range(-(2**63), 2**63)}
#: Clocks of a board: name -> (unit, default, lowest, highest).
CLOCKS = {"core": ("MHz", 750, 100, 1000), "gddr6": ("Mbps", 15000, 1000, 20000)}
MEMORIES = tuple(f"{kind}{group}" for kind in ("dram", "pdm") for group in range(4))


def beside(path: Path) -> Path:
    """A name for what becomes `path` once it is complete; no other process or thread has it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")


class BoardFiles:
    """Paths and small records of one board."""

    def __init__(self, state: Path, name: str) -> None:
        self.name, self.root = name, state / "boards" / name

    # --- clocks ------------------------------------------------------------------------------------------------------
    def clocks(self) -> dict[str, int]:
        """The clocks that `gpfn3-smi config` set, else the defaults. Raises DeviceStateError."""
        path = self.root / "config.json"
        record = self._read_record(path, "delete it") or {}
        found = {}
        for name, (_, default, low, high) in CLOCKS.items():
            value = found[name] = record.get(name, default)
            if type(value) is not int or not low <= value <= high:
                raise self.damaged(path, f"{name} is {value!r:.40}, not {low}..{high}", "delete it")
        return found

    def set_clocks(self, clocks: dict[str, int]) -> None:
        self.prepare()
        self._write_record(self.root / "config.json", clocks)

    # --- generations -------------------------------------------------------------------------------------------------
    @property
    def epoch_file(self) -> Path:
        return self.root / "epoch"

    def epoch(self) -> int:
        """The number of the current generation, 0 for a board that nobody used. Raises DeviceStateError."""
        try:
            descriptor = os.open(self.epoch_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                data = os.read(descriptor, 9)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._trouble(self.epoch_file, error) from None
        if len(data) != 8:
            raise self.damaged(self.epoch_file, "it has not 8 bytes")
        return int(struct.unpack("<Q", data)[0])

    def prepare(self) -> None:
        """Makes the directories and the epoch file if they are missing."""
        try:
            self._make_root()
            self.generation().mkdir(exist_ok=True)
        except OSError as error:
            raise self._trouble(self.root, error) from None

    def _make_root(self) -> None:
        """The epoch file appears with its contents, so that nobody finds it empty or writes 0 over a reset."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self.epoch_file.exists():
            return
        aside = beside(self.epoch_file)
        aside.write_bytes(struct.pack("<Q", 0))
        try:
            os.link(aside, self.epoch_file)
        except FileExistsError:
            pass
        finally:
            aside.unlink()

    def hold(self, timeout: float = 0.0) -> tuple[Lock, int]:
        """The lock of the current generation, and its number. Raises DeviceBusy (after `timeout` seconds) or
        DeviceStateError."""
        for _ in range(100):
            self.prepare()
            epoch = self.epoch()
            lock = acquire(self.lock_path(epoch), self.name, timeout)
            try:
                if self.epoch() == epoch:
                    return lock, epoch
            except BaseException:
                lock.release()
                raise
            lock.release()  # a reset came in between
        raise DeviceBusy(f"{self.name} is being reset again and again; try later")

    def generation(self, epoch: int | None = None) -> Path:
        return self.root / f"g{self.epoch() if epoch is None else epoch}"

    def lock_path(self, epoch: int | None = None) -> Path:
        return self.generation(epoch) / "lock"

    def begin_generation(self, fill: dict) -> int:
        """Void what the board held, damaged or not: a new generation with this fill record, {"kind", "value",
        "on_chip"}. The files of all others are removed."""
        try:
            self._make_root()
            guard = os.open(self.root / "reset.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(guard, fcntl.LOCK_EX)
                number = 1 + max([self._epoch_or_none(), *self._generations()])
                self.generation(number).mkdir()
                self.write_fill(fill, number)
                descriptor = os.open(self.epoch_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                os.pwrite(descriptor, struct.pack("<Q", number), 0)
                os.ftruncate(descriptor, 8)
                os.close(descriptor)
                for other in self._generations():
                    if other != number:
                        shutil.rmtree(self.generation(other), ignore_errors=True)
            finally:
                os.close(guard)
        except OSError as error:
            raise self._trouble(self.root, error) from None
        return number

    def _epoch_or_none(self) -> int:
        """The epoch; -1 if it cannot be read or counted on."""
        try:
            epoch = self.epoch()
        except DeviceStateError:
            return -1
        return epoch if epoch < 2**63 else -1

    def _generations(self) -> list[int]:
        """The generations that have a directory."""
        names = [path.name[1:] for path in self.root.glob("g*")]
        return [int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 20]

    # --- records -----------------------------------------------------------------------------------------------------
    def fill(self) -> dict:
        """{"kind": zero | pattern | random, "value": int, "on_chip": whether on-chip memories still hold it}.
        Raises DeviceStateError."""
        epoch = self.epoch()
        path = self.generation(epoch) / "fill.json"
        record = self._read_record(path)
        if record is None:
            if epoch:
                raise self.damaged(path, "it is missing")
            return {"kind": "zero", "value": 0, "on_chip": False}
        version = record.get("format", FORMAT)
        if version != FORMAT:
            raise DeviceStateError(
                f"{self.name}: {path} has format {version!r:.20}, this version reads {FORMAT}; use the version of Open "
                f"MLSDK that wrote it, or set MLSDK_STATE to another directory"
            )
        kind, value, on_chip = (record.get(name) for name in ("kind", "value", "on_chip"))
        if type(kind) is not str or type(value) is not int or value not in FILLS.get(kind, ()):
            raise self.damaged(path, f"{kind!r:.20} with {value!r:.20} is no fill")
        return {"kind": kind, "value": value, "on_chip": bool(on_chip)}

    def write_fill(self, fill: dict, epoch: int | None = None) -> None:
        self._write_record(self.generation(epoch) / "fill.json", {"format": FORMAT, **fill})

    def _read_record(self, path: Path, what_to_do: str = "") -> dict | None:
        """The object in a JSON file, None if there is no file."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._trouble(path, error) from None
        except (ValueError, RecursionError):
            raise self.damaged(path, "it is not JSON", what_to_do) from None
        if not isinstance(record, dict):
            raise self.damaged(path, "it is no JSON object", what_to_do)
        return record

    def _write_record(self, path: Path, record: dict) -> None:
        aside = beside(path)
        try:
            aside.write_text(json.dumps(record))
            os.replace(aside, path)
        except OSError as error:
            raise self._trouble(path, error) from None

    # --- facts for `list` --------------------------------------------------------------------------------------------
    def locked(self) -> bool:
        return is_locked(self.lock_path())

    def holder(self) -> Holder | None:
        return read_holder(self.lock_path())

    def memory_in_use(self) -> int:
        """Bytes of DRAM and PDM that are materialised."""
        total = 0
        for memory in MEMORIES:
            try:
                total += (self.generation() / f"{memory}.pages").read_bytes().count(1) * PAGE_BYTES
            except OSError:
                pass
        return total

    def damaged(self, path: Path, fact: str, what_to_do: str = "") -> DeviceStateError:
        """The error for a file that this package did not leave like this."""
        anew = f"`gpfn3-smi reset {self.name}` begins anew, without the board's data"
        return DeviceStateError(f"{self.name}: {path} is damaged: {fact}; {what_to_do or anew}")

    def _trouble(self, path: Path, error: OSError) -> DeviceStateError:
        return DeviceStateError(
            f"{self.name}: {path}: {error.strerror}; free space, fix permissions, or set MLSDK_STATE to another directory"
        )
