# make reproduce   train what the exhibits need at scale smoke (embedded data), make figures and tables
# make test        style, types, unit tests, notebooks; every exhibit of the papers is made at scale smoke and fresh
# make slow        what takes longer: the audit's notebooks, the recipes (with the extras where they are), the site in a browser, the wheel, every method in every way
# make nightly     what takes longer still: hostile replies, every method on networks of today and in bf16, every notebook changed
# make faults      plant faults one at a time and see whether a test fails: one to two hours on two cores, nothing for every day
# make extras      what few need, at the versions that were tried (requirements-extras.txt), and packages/flower
# make lab         open the notebooks in JupyterLab
# make CPU=1       with any of these, at the first call: PyTorch without CUDA, 2 GB in place of 5
# make site        build the site from the committed notebooks, results and figures into site/html; executes nothing
# make lock        pin every package with its hashes in requirements.lock, for Python 3.11 to 3.13
# make notebooks   execute the committed notebooks in place and bring the pages' computed blocks up to date

SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
CPU_BUILDS := https://download.pytorch.org/whl/cpu
INSTALLED := .venv/installed
CORES = $(shell $(BIN)/python -c 'import os; print(min(8, os.cpu_count() or 1))')
PYTEST = $(BIN)/python -m pytest --dist loadscope --durations 30 --durations-min 8
TESTS = $(PYTEST) -n $(CORES) -p no:nbval
# In the order of their names: by numbers of cells, the longest would be among the last. A kernel has a core to itself.
NOTEBOOKS = OMP_NUM_THREADS=1 $(PYTEST) -n $(CORES) --no-loadscope-reorder -p no:cacheprovider -W ignore --nbval-lax --nbval-current-env --nbval-cell-timeout 600

# pip's progress as one line that counts.
COUNTED = awk '/^Collecting/ { printf "\r%d of about 210 packages found", ++found; fflush() } END { print "" }'

.PHONY: reproduce test style smoke fresh unit slow nightly faults extras lab site lock notebook notebooks
.DELETE_ON_ERROR:

reproduce: $(INSTALLED)
	$(BIN)/python -m fedlib reproduce all --scale smoke

# The notebooks are executed once, by nbval: they read the runs trained before and save the exhibits.
test: $(INSTALLED)
	$(MAKE) --no-print-directory -j2 style smoke
	$(NOTEBOOKS) --ignore notebooks/audit notebooks
	$(MAKE) --no-print-directory -j2 fresh unit

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

smoke: $(INSTALLED)
	$(BIN)/python -m fedlib reproduce papers --scale smoke --train-only

fresh: $(INSTALLED)
	$(BIN)/python -m fedlib reproduce papers --scale smoke --check

unit: $(INSTALLED)
	$(TESTS) tests

slow: $(INSTALLED)
	$(BIN)/python -m fedlib reproduce audit --scale smoke --train-only
	$(NOTEBOOKS) notebooks/audit notebooks/recipes
	$(BIN)/python -m fedlib reproduce audit --scale smoke --check
	$(TESTS) -m slow tests
	$(TESTS) -m "not nightly" packages/flower/tests
	$(NOTEBOOKS) packages/flower/notebooks

nightly: $(INSTALLED)
	$(TESTS) -m nightly tests packages/flower/tests

faults: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python tests/faults.py

extras: $(INSTALLED)
	$(PIP) --quiet -r requirements-extras.txt
	$(PIP) --quiet --no-deps --no-build-isolation --editable packages/flower

lab: $(INSTALLED)
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.news_url=None --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

site: $(INSTALLED)
	$(BIN)/python docs/build.py site

lock: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(BIN)/uv pip compile --quiet requirements.txt --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --output-file requirements.lock

notebooks: $(INSTALLED)
	$(BIN)/python -m fedlib reproduce all --scale smoke
	$(BIN)/python -c "from fedlib.papers import reproduce; reproduce.refresh(reproduce.all_notebooks())"
	$(BIN)/ruff format -q notebooks
	$(BIN)/python docs/blocks.py

notebook: $(INSTALLED)  # make notebook FILE=fedssa/5_robustness.ipynb
	$(BIN)/python -c "from fedlib.papers import reproduce; reproduce.refresh_one('$(FILE)')"
	$(BIN)/ruff format -q notebooks/$(FILE)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedlib needs Python 3.11 or newer; try: make PYTHON=python3.12 ...")'
	@echo "Installing into .venv, two to ten minutes: $(if $(CPU),about 2 GB (PyTorch without CUDA),about 5 GB, most of it PyTorch's CUDA (without: make CPU=1))"
	$(PYTHON) -m venv .venv
ifdef CPU
	$(PIP) --quiet --index-url $(CPU_BUILDS) $(shell grep -oE '^torch(vision)?==[0-9.]+' requirements.txt)
	$(BIN)/python -c "import re; print(*re.findall(r'(?ms)^(?!torch|nvidia|cuda|triton)[a-z].*?(?=^[a-z]|\Z)', open('requirements.lock').read()), sep='')" > .venv/without-cuda.lock
	$(PIP) --no-deps --require-hashes -r .venv/without-cuda.lock | $(COUNTED)
else
	$(PIP) --require-hashes -r requirements.lock | $(COUNTED)
endif
	$(PIP) --quiet --no-deps --no-build-isolation --editable .
	touch $(INSTALLED)
	@echo "Installed. Next: . .venv/bin/activate, then fedlib --help"
