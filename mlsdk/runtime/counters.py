"""What a device did for a program, counted: the proof that something was not copied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Since the device was opened. Bytes are those of the images in device memory."""

    runs: int = 0  # programs executed
    steps: int = 0  # steps that they took
    uploads: int = 0  # host -> device
    uploaded_bytes: int = 0
    downloads: int = 0  # device -> host, asked for by the program: .cpu(), synchronize()
    downloaded_bytes: int = 0
    relocations: int = 0  # a function read a value where another one had left it
    device_copies: int = 0  # copies inside device memory
    conversions: int = 0  # from one layout or dtype to another, through the host
