"""The sliders of 02_explore as a reader has them: JupyterLab in a browser, every cell run, a handle moved by the keyboard."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("jupyterlab", "ipywidgets")
TOKEN = "slider"
SECONDS = 180

missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
]
# No question about news, and cells that are out of sight stay in the page.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@pytest.fixture
def lab_url(browser, tmp_path):
    """A JupyterLab server of a copy of the notebooks; its kernels run this fedlib, in a home of their own."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name, values in SETTINGS.items():
        path = tmp_path / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    folders |= {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "FEDLIB_HOME": "home"}
    environment = os.environ | {name: str(tmp_path / folder) for name, folder in folders.items()}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    options += ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--ServerApp.root_dir={tmp_path / 'notebooks'}"]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=log, env=environment, cwd=tmp_path
        )
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + SECONDS
        while not answers(f"{url}/api/status?token={TOKEN}"):
            assert server.poll() is None and time.monotonic() < end, (tmp_path / "server.log").read_text()[-3000:]
            time.sleep(0.5)
        yield url
    finally:
        server.terminate()  # its kernels end with it
        server.wait(60)


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=10).status == 200
    except (urllib.error.URLError, OSError):
        return False


def until(fact, what):
    """Wait until `fact()` holds."""
    end = time.monotonic() + SECONDS
    while not fact():
        assert time.monotonic() < end, f"after {SECONDS} s still not: {what}"
        time.sleep(0.3)


def test_a_slider_draws_and_a_list_shows_its_table(browser, lab_url, tmp_path):
    context = browser.new_context(viewport={"width": 1366, "height": 1200})
    context.route(lambda url: not url.startswith(lab_url), lambda route: route.abort())  # offline
    page = context.new_page()
    page.set_default_timeout(1000 * SECONDS)
    page.goto(f"{lab_url}/lab/tree/02_explore.ipynb?token={TOKEN}")
    page.locator(".jp-Notebook .jp-CodeCell").last.wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # sooner, running would ask for a kernel
    page.locator(".lm-MenuBar-itemLabel", has_text="Run").click()
    page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()

    def cell(call):
        return page.locator(".jp-CodeCell", has_text=f"pages.interact({call}").locator(".jp-Cell-outputArea")

    decay = cell("decay")
    handle, picture = decay.locator(".noUi-handle").first, decay.locator("img")
    handle.wait_for()
    picture.wait_for()
    before = picture.get_attribute("src")
    assert before.startswith("data:image/png") and picture.evaluate("image => image.naturalWidth") > 300
    handle.focus()
    handle.press("ArrowRight")
    until(lambda: picture.count() == 1 and picture.get_attribute("src") != before, "another picture")
    assert "0.55" in decay.locator(".widget-readout").first.inner_text()
    growth = cell("growth")
    growth.locator(".noUi-handle").first.press("ArrowRight")
    until(lambda: "mu0 = 0.55" in growth.inner_text(), "the printed growth at 0.55")
    chosen = cell("compare")
    table = chosen.locator("table")
    table.wait_for()
    assert chosen.locator("img").count() == 1 and "Standalone" in table.inner_text()
    names = chosen.locator("select option").all_inner_texts()
    shown = table.inner_text()
    chosen.locator("select").select_option(names[-1])
    until(lambda: table.count() == 1 and table.inner_text() != shown, f"the table of {names[-1]}")
    context.close()
