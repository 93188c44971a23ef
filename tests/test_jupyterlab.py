"""Notebooks as a reader has them, JupyterLab in a browser: cells run without a red box, a slider moves its picture, an
interruption is one line. One server and one browser serve all.
"""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("jupyterlab", "ipywidgets")
TOKEN = "reader"
SECONDS = 180
NOTEBOOKS = sorted(
    str(path.relative_to(ROOT / "notebooks"))
    for path in (ROOT / "notebooks").rglob("*.ipynb")
    if ".ipynb_checkpoints" not in path.parts
)
# The map, which trains, and a lesson: the others take ten minutes more, and `make slow` runs them without a browser too.
SAMPLE = ("00_start_here.ipynb", "fedssa/1_method.ipynb")
EVERY = "FEDLIB_EVERY_NOTEBOOK"

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


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab_url(browser, lab_folder):
    """A JupyterLab server of a copy of the notebooks; its kernels run this fedlib, in a home of their own."""
    tmp_path = lab_folder
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


@pytest.fixture
def lab(browser, lab_url):
    """Opens a notebook in a window 1366 pixels wide; its kernel ends with the test."""
    context = browser.new_context(viewport={"width": 1366, "height": 1200})
    context.route(lambda url: not url.startswith(lab_url), lambda route: route.abort())  # offline
    page = context.new_page()
    page.set_default_timeout(1000 * SECONDS)

    def opened(name):
        page.goto(f"{lab_url}/lab/tree/{name}?token={TOKEN}&reset")
        page.locator(".jp-Notebook .jp-CodeCell").last.wait_for()
        return page

    yield opened
    context.close()
    for session in json.load(urllib.request.urlopen(f"{lab_url}/api/sessions?token={TOKEN}")):
        path = f"{lab_url}/api/sessions/{session['id']}?token={TOKEN}"
        urllib.request.urlopen(urllib.request.Request(path, method="DELETE"))


def run_all(page):
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # sooner, running would ask for a kernel
    page.locator(".lm-MenuBar-itemLabel", has_text="Run").click()
    page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()


RED = '[data-mime-type="application/vnd.jupyter.stderr"]'  # of errors too


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_run_without_a_red_box(name, lab, lab_folder):
    if name not in SAMPLE and not os.environ.get(EVERY):
        pytest.skip(f"a sample is run in a browser; {EVERY}=1 runs every notebook")
    book = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    for cell in book.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source, changed = re.subn(r"(?m)^(rounds: \w+ = ).*$", r"\g<1>1", cell.source)
            assert changed == 1
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    short = name.replace(".ipynb", "-short.ipynb")
    nbformat.write(book, lab_folder / "notebooks" / short)
    page = lab(short)
    run_all(page)
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    red = page.locator(RED)
    until(lambda: red.count() or re.search(r"\d", prompts.last.inner_text()), "the last cell run")
    assert red.all_inner_texts() == []


def test_an_interruption_is_one_line(lab, lab_folder):
    cell = """from fedlib import RunSpec, run
run(RunSpec("FedAvg", dataset="digits", scenario="homogeneous", num_clients=4, rounds=5000))"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    nbformat.write(book, lab_folder / "notebooks" / "long.ipynb")
    page = lab("long.ipynb")
    run_all(page)
    output = page.locator(".jp-OutputArea")
    until(lambda: "round" in output.inner_text(), "a round")
    page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").click()
    page.locator(".lm-Menu-itemLabel").get_by_text("Interrupt Kernel", exact=True).click()
    red = page.locator(RED)
    red.wait_for()
    assert red.inner_text().splitlines() == [red.inner_text()] and red.inner_text().endswith("resumes from there")


def test_a_slider_and_a_list_draw_another_picture(lab):
    page = lab("02_explore.ipynb")
    run_all(page)

    def shown(call):
        return page.locator(".jp-CodeCell", has_text=f"interact({call}").locator(".jp-Cell-outputArea")

    def changed(picture, before):
        return picture.count() == 1 and picture.get_attribute("src") != before

    decay, curves = shown("decay"), shown("curves")
    handle, picture = decay.locator(".noUi-handle").first, decay.locator("img")
    handle.wait_for()
    picture.wait_for()
    before = picture.get_attribute("src")
    assert before.startswith("data:image/png") and picture.evaluate("image => image.naturalWidth") > 300
    handle.focus()
    handle.press("ArrowRight")
    until(lambda: changed(picture, before), "another picture")
    assert "0.55" in decay.locator(".widget-readout").first.inner_text()
    picture = curves.locator("img")
    picture.wait_for()
    before = picture.get_attribute("src")
    names = curves.locator("select option").all_inner_texts()
    curves.locator("select").select_option(names[-1])
    until(lambda: changed(picture, before), f"the curves of {names[-1]}")
