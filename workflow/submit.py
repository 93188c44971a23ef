"""Runs as jobs of a Slurm array, with submitit alone: no daemon, no workflow.

    fedlib reproduce fedssa/table2 --scale record --plan json > plan.json
    python workflow/submit.py plan.json logs

FEDLIB_HOME must be on a folder that all nodes share. A job that runs out of time is submitted again, and resumes.
"""

import json
import subprocess
import sys

import submitit


class Run(submitit.helpers.Checkpointable):  # asked for on a time-out: `checkpoint` submits the same call again
    def __call__(self, spec: dict) -> None:
        command = [sys.executable, "-m", "fedlib", "run", "--spec", "-"]
        subprocess.run(command, input=json.dumps(spec), text=True, check=True)


plan, logs = sys.argv[1:]
with open(plan) as file:
    specs = [run["spec"] for run in json.load(file)["runs"] if not run["stored"]]
executor = submitit.AutoExecutor(folder=logs)
executor.update_parameters(timeout_min=240, cpus_per_task=1, mem_gb=4, slurm_array_parallelism=50)
for job in executor.map_array(Run(), specs) if specs else []:
    job.result()
