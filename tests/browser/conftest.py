"""A real JupyterLab and a real Chromium, for the tests in this folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {
    # No pop-up, no request to the net.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell on the page, not only those near the screen.
    "notebook-extension/tracker": {"windowingMode": "none"},
}

# A lab whose probe takes three tenths of a second, and which writes down what it was asked.
SLOW = """
import time
from pathlib import Path
from tiny_lm.plots.rms import PairPicture
from tiny_lm.probes.rms import pair
from tiny_lm.widgets.controls import slider
from tiny_lm.widgets.lab import Lab

def slow(x1):
    time.sleep(0.3)
    with open("asked.txt", "a") as file:
        print(x1, file=file)
    return pair(x1, 4.0)

Lab(slow, PairPicture, {"x1": slider("x1", -6, 6, 3.0)})
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """The folder of a JupyterLab: its settings, and a copy of the notebooks."""
    if CHROMIUM is None:
        pytest.skip("no chromium found: apt-get install chromium")
    work = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, work / "notebooks")
    slow = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SLOW)])
    slow.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(slow, work / "notebooks/slow.ipynb")
    return work


@pytest.fixture(scope="session")
def lab_url(work):
    with jupyterlab(work) as url:
        yield url


@contextmanager
def jupyterlab(work):
    """A JupyterLab of its own on work/notebooks: loopback, a free port, no token; its address."""
    for name, settings in SETTINGS.items():
        file = work / f"settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(work / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(work / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(work / "workspaces"),
    }
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"]
    command += ["--ip=127.0.0.1", f"--port={url.rsplit(':', 1)[1]}"]
    command += [f"--ServerApp.root_dir={work / 'notebooks'}", "--IdentityProvider.token="]
    command += ["--LabApp.news_url=None", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with open(work / "jupyter.log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_until_up(url, server, work / "jupyter.log")
            yield url
        finally:
            server.terminate()
            server.wait(20)


def wait_until_up(url, server, log):
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{url}/api/status", timeout=1)
            return
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.5)
    raise TimeoutError(log.read_text())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keep a picture of the page that a test failed on, and say where it is."""
    report = yield
    page = getattr(item, "funcargs", {}).get("browser_page")
    if report.when == "call" and report.failed and page is not None:
        picture = item.funcargs["tmp_path"] / "page.png"
        page.screenshot(path=picture)
        report.sections.append(("the page as it was", str(picture)))
    return report


@pytest.fixture
def browser_page(tmp_path):
    """A page of a new browser profile."""
    if CHROMIUM is None:
        pytest.skip("no chromium found: apt-get install chromium")
    with chromium(tmp_path / "profile") as page:
        yield page


@contextmanager
def chromium(profile):
    """A page of a browser whose profile is kept in a folder."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            headless=True,
            args=FLAGS,
            viewport={"width": 1280, "height": 1100},
        )
        yield context.new_page()
        context.close()


@pytest.fixture
def page(lab_url, browser_page):
    """A page for JupyterLab; `page.errors` collects what the console complains of."""
    errors = browser_page.errors = []
    browser_page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    return browser_page
