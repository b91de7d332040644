"""The pages in a real browser: no error in the console, nothing leaves this machine, the viewers show what is in the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from urllib.parse import quote, urlsplit

import pytest
from dashboard_sample import EVIL
from test_dashboard_pages import NAMED, PLAIN

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (os.path.exists(CHROMIUM) and os.path.exists(DRIVER)),
        reason=f"{CHROMIUM} or {DRIVER} is not there: install Debian's chromium and chromium-driver",
    ),
]


@pytest.fixture(scope="module")
def address(compiled):
    """A real server with a folder, another to compare with, and a store."""
    command = ["dashboard", str(compiled / "a"), "--compare", str(compiled / "b"), "--store", str(compiled / "store")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlsdk.cli.main", *command, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().split()[3]
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--window-size=1400,900",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def until(condition, seconds: float = 30):
    """The first true answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def quiet(browser) -> None:
    """No error in the console, and every request since the last look went to this machine."""
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            assert urlsplit(url).hostname == "127.0.0.1" or url.startswith(("data:", "blob:", "chrome", "about:")), url


def frame(browser):
    browser.switch_to.frame(until(lambda: browser.find_elements("css selector", "iframe.viewer"))[0])


@pytest.mark.parametrize("path", PLAIN + NAMED)
def test_each_page_opens_quietly(browser, address, path):
    browser.get(address + path)
    assert browser.find_element("css selector", "h1").text
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the window"
    if "iframe" in browser.page_source:
        time.sleep(1)
    quiet(browser)


def test_names_do_nothing(browser, address):
    for path in (
        f"/node/view?name={quote(EVIL)}",
        "/summary",
        "/memory",
        f"/tools/layout?value={quote(EVIL)}",
        "/tools",
    ):
        browser.get(address + path)
        assert not browser.find_elements("css selector", "img[onerror]")
        assert EVIL in browser.find_element("tag name", "body").text or path == "/memory"
    quiet(browser)


def test_numbers_on_the_page_are_those_of_the_json_and_the_files(browser, address, compiled):
    report = json.loads((compiled / "a" / "report.json").read_bytes())
    browser.get(address + "/summary")
    assert browser.find_element("css selector", '[data-tile="Steps"]').text == f"{report['steps']:,}"
    shown = browser.execute_script(
        "const at = document.querySelector('#t-layers th[data-key=steps]').cellIndex;"
        "return Array.from(document.querySelectorAll('#t-layers tbody tr'), r => [r.cells[0].textContent, r.cells[at].dataset.v])"
    )
    rows = json.loads((compiled / "a" / "simulation_result.json").read_bytes())["rows"]
    rows.sort(key=lambda row: row["start"] - row["end"])  # those that take most steps first
    assert [(name, float(steps)) for name, steps in shown] == [(r["node"], (r["end"] - r["start"]) / 4) for r in rows]


def test_sorting_and_filtering(browser, address):
    browser.get(address + "/summary")

    def column(table: str, key: str) -> list[str]:
        rows = f"document.querySelectorAll('#{table} tbody tr:not([hidden])')"
        at = f"document.querySelector('#{table} th[data-key={key}]').cellIndex"
        return browser.execute_script(f"const at = {at}; return Array.from({rows}, r => r.cells[at].textContent)")

    names = column("t-layers", "name")
    for order in ("steps", "-steps"):
        browser.find_element("css selector", '#t-layers th[data-key="steps"] a').click()
        until(lambda order=order: f"layers.sort={order}" in browser.current_url)
        steps = [int(text.replace(",", "")) for text in column("t-layers", "steps")]
        assert steps == sorted(steps, reverse=order == "-steps")
    browser.find_element("css selector", "#t-layers .filter").send_keys("softmax")
    until(lambda: column("t-layers", "name") == ["softmax"])
    assert len(names) == 3
    until(lambda: "layers.q=softmax" in browser.current_url)
    head = browser.find_element("css selector", '#t-options th[data-key="origin"] button')
    browser.execute_script("arguments[0].click()", head)
    assert column("t-options", "origin") == sorted(column("t-options", "origin"))
    browser.find_element("css selector", "#tab-dtype").click()
    assert browser.find_element("css selector", "#panel-dtype").is_displayed()
    assert not browser.find_element("css selector", "#panel-op").is_displayed()
    quiet(browser)


def test_netron_draws_the_graph(browser, address):
    browser.get(address + "/netron?file=exported.onnx")
    frame(browser)
    until(lambda: browser.execute_script("return document.querySelectorAll('#canvas .node').length") >= 3)
    text = browser.execute_script("return document.querySelector('#canvas').textContent")
    assert "Gemm" in text and "Softmax" in text
    browser.switch_to.default_content()
    quiet(browser)


def test_perfetto_shows_the_slices(browser, address, compiled):
    browser.get(address + "/perfetto?file=trace.json")
    frame(browser)
    until(lambda: "MN-Core 2 (emulated)" in browser.execute_script("return document.body.innerText"))
    query = (
        "const done = arguments[arguments.length - 1];"
        "const engine = self.app && self.app._activeTrace && self.app._activeTrace.engine || self.app.trace.engine;"
        "engine.query('select name from slice').then(r => {"
        "  const names = []; for (const it = r.iter({}); it.valid(); it.next()) names.push(it.get('name')); done(names);"
        "}).catch(e => done(['failed ' + e]))"
    )
    names = browser.execute_async_script(query)
    assert {"softmax", "fc2", EVIL, "mvp"} <= set(names), names[:5]
    events = json.loads((compiled / "a" / "trace.json").read_bytes())["traceEvents"]
    assert len(names) == sum(event["ph"] == "X" for event in events), "Perfetto dropped slices"
    browser.switch_to.default_content()
    quiet(browser)


def test_chrome_tracing_shows_the_slices(browser, address):
    browser.get(address + "/tracing?file=profile.json")
    frame(browser)
    until(lambda: browser.execute_script("return document.documentElement.dataset.ready"))
    browser.execute_script(
        "const names = [], model = document.getElementById('trace-viewer').model;"
        "for (const event of model.getDescendantEvents()) names.push(event.title);"
        "document.documentElement.dataset.names = JSON.stringify(names);"
    )
    # The polyfill wraps the document, which the driver does not expect: what was found is read from outside.
    browser.switch_to.default_content()
    inside = "document.querySelector('iframe.viewer').contentDocument"
    names = json.loads(browser.execute_script(f"return {inside}.documentElement.dataset.names"))
    assert {"softmax", "fc2", EVIL} <= set(names)
    assert browser.execute_script(f"return {inside}.querySelectorAll('img[onerror]').length") == 0
    quiet(browser)


def test_a_growing_log_is_followed(browser, address, compiled):
    browser.get(address + "/logs?file=CLOG.log")
    log = compiled / "a" / "CLOG.log"
    before = log.read_bytes()
    try:
        browser.find_element("id", "follow").click()
        with log.open("a") as out:
            out.write(f"WARNING {EVIL} came later\n")
        until(lambda: browser.find_elements("css selector", "#log li")[-1].text == f"WARNING {EVIL} came later", 10)
    finally:
        log.write_bytes(before)
    quiet(browser)


def test_keys_and_focus(browser, address):
    from selenium.webdriver.common.keys import Keys

    browser.get(address + "/node")
    body = browser.find_element("tag name", "body")
    body.send_keys("/")
    assert "filter" in browser.switch_to.active_element.get_attribute("class")
    browser.get(address + "/memory")
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
    box = browser.find_element("css selector", "[data-told]")
    browser.execute_script("arguments[0].focus()", box)
    assert browser.find_element("id", "told").text == box.get_attribute("data-told")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(browser, address, scheme):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        for path in (
            "/summary",
            "/node/view?name=fc2",
            "/memory",
            "/advice",
            "/tools/layout?value=x",
            "/logs",
            "/store",
        ):
            browser.get(address + path)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, (path, wide)
            ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
