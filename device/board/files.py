"""The files of a board.

    <state>/boards/<name>/epoch        8 bytes: the number of the current generation; a reset begins a new one
    <state>/boards/<name>/reset.lock   held while a reset or a clear changes the generation
    <state>/boards/<name>/g<epoch>/    lock, fill.json, and for each memory <memory>.bin (sparse) and <memory>.pages
    (a byte a page)

Data and lock belong to a generation: whoever holds the old one keeps its files until it notices, and disturbs nobody.
Imports nothing heavy.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
from pathlib import Path

from ..errors import DeviceStateError
from .lock import Holder, is_locked, read_holder

PAGE_BYTES = 65536
#: Clocks of a board: name -> (unit, default, lowest, highest).
CLOCKS = {"core": ("MHz", 750, 100, 1000), "gddr6": ("Mbps", 15000, 1000, 20000)}
MEMORIES = tuple(f"{kind}{group}" for kind in ("dram", "pdm") for group in range(4))


class BoardFiles:
    """Paths and small records of one board."""

    def __init__(self, state: Path, name: str) -> None:
        self.name, self.root = name, state / "boards" / name

    # --- clocks ------------------------------------------------------------------------------------------------------
    def clocks(self) -> dict[str, int]:
        """The clocks that `gpfn3-smi config` set, else the defaults."""
        try:
            record = json.loads((self.root / "config.json").read_text())
        except (OSError, ValueError, RecursionError):
            record = {}
        found = {}
        for name, (_, default, low, high) in CLOCKS.items():
            value = record.get(name, default) if isinstance(record, dict) else default
            found[name] = value if isinstance(value, int) and low <= value <= high else default
        return found

    def set_clocks(self, clocks: dict[str, int]) -> None:
        self.prepare()
        self._write_record(self.root / "config.json", clocks)

    # --- generations -------------------------------------------------------------------------------------------------
    @property
    def epoch_file(self) -> Path:
        return self.root / "epoch"

    def epoch(self) -> int:
        try:
            data = self.epoch_file.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._trouble(self.epoch_file, error) from None
        return int(struct.unpack("<Q", data)[0]) if len(data) == 8 else 0

    def prepare(self) -> None:
        """Makes the directories and the epoch file if they are missing."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.epoch_file.exists():
                descriptor = os.open(self.epoch_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
                if os.fstat(descriptor).st_size < 8:
                    os.pwrite(descriptor, struct.pack("<Q", 0), 0)
                os.close(descriptor)
            self.generation().mkdir(exist_ok=True)
        except OSError as error:
            raise self._trouble(self.root, error) from None

    def generation(self, epoch: int | None = None) -> Path:
        return self.root / f"g{self.epoch() if epoch is None else epoch}"

    def lock_path(self, epoch: int | None = None) -> Path:
        return self.generation(epoch) / "lock"

    def begin_generation(self, fill: dict) -> int:
        """Void what the board held: a new generation with this fill record. The files of the old one are removed."""
        self.prepare()
        try:
            guard = os.open(self.root / "reset.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(guard, fcntl.LOCK_EX)
                old = self.epoch()
                new = self.generation(old + 1)
                new.mkdir(exist_ok=True)
                self._write_record(new / "fill.json", fill)
                descriptor = os.open(self.epoch_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                os.pwrite(descriptor, struct.pack("<Q", old + 1), 0)
                os.close(descriptor)
                shutil.rmtree(self.generation(old), ignore_errors=True)
            finally:
                os.close(guard)
        except OSError as error:
            raise self._trouble(self.root, error) from None
        return old + 1

    # --- records -----------------------------------------------------------------------------------------------------
    def fill(self) -> dict:
        """{"kind": zero | pattern | random, "value": int, "on_chip": whether on-chip memories still hold it}"""
        try:
            record = json.loads((self.generation() / "fill.json").read_text())
            if record.get("kind") in ("zero", "pattern", "random"):
                return {
                    "kind": record["kind"],
                    "value": int(record.get("value", 0)),
                    "on_chip": bool(record.get("on_chip")),
                }
        except (OSError, ValueError, RecursionError, TypeError, AttributeError):
            pass
        return {"kind": "zero", "value": 0, "on_chip": False}

    def write_fill(self, fill: dict) -> None:
        self._write_record(self.generation() / "fill.json", fill)

    def _write_record(self, path: Path, record: dict) -> None:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
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

    def _trouble(self, path: Path, error: OSError) -> DeviceStateError:
        return DeviceStateError(
            f"{self.name}: {path}: {error.strerror}; free space, fix permissions, or set MLSDK_STATE to another directory"
        )
