"""The pictures of docs/dashboard.md: `python -m bench.screenshots DIR [OTHER_DIR]`, of two compiles of one program."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.dashboard import browser

PICTURES = Path(__file__).parent.parent / "docs" / "images"
WIDE, PHONE = (1280, 820), (390, 780)
#: picture -> (page, size, colour scheme, language, seconds that its viewer needs)
SHOTS: dict[str, tuple[str, tuple[int, int], str, str, float]] = {
    "summary": ("/summary", WIDE, "light", "en", 0.3),
    "summary-ja-dark": ("/summary", WIDE, "dark", "ja", 0.3),
    "node": ("/node/view?name={node}", WIDE, "light", "en", 0.3),
    "layout": ("/tools/layout?value={value}", WIDE, "light", "en", 0.3),
    "memory": ("/memory", WIDE, "dark", "en", 0.3),
    "perfetto": ("/perfetto", WIDE, "light", "en", 8),
    "search": ("/search", WIDE, "light", "en", 0.3),
    "advice": ("/advice", WIDE, "light", "en", 0.3),
    "phone": ("/advice", PHONE, "light", "en", 0.3),
}


def main(folders: list[str]) -> int:
    if not folders:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "mlsdk.cli.main", "dashboard", folders[0], "--port", "0"]
    command += [part for other in folders[1:] for part in ("--compare", other)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[3]
        PICTURES.mkdir(parents=True, exist_ok=True)
        with browser() as driver:
            for name, shot in SHOTS.items():
                take(driver, address, PICTURES / f"dashboard-{name}.png", *shot)
    finally:
        server.terminate()
        server.wait(10)
    return 0


def take(
    driver: Any, address: str, path: Path, page: str, size: tuple[int, int], scheme: str, language: str, wait: float
) -> None:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {"Accept-Language": language}})
    if "{" in page:
        driver.get(f"{address}/summary?layers.sort=-steps")
        node = driver.find_element("css selector", "#t-layers tbody a").text
        driver.get(f"{address}/memory")
        value = driver.find_element("css selector", "#t-values tbody a").text
        page = page.format(node=node, value=value)
    driver.get(address + page)
    time.sleep(wait)
    driver.save_screenshot(str(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
