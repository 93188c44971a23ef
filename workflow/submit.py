"""Runs as jobs of a Slurm array, with submitit alone: no daemon, no workflow.

    pip install 'fedlib[workflow]' && fedlib workflow copy workflow
    fedlib reproduce fedssa/table2 --scale record --plan json > plan.json
    python workflow/submit.py plan.json logs

FEDLIB_HOME, when the plan is made, must be on a folder that all nodes share; the plan remembers it. A job that runs out of
time or is preempted saves after its round and is put into the queue again, where it goes on. A plan of another schema or
another version of fedlib is refused.
"""

import json
import os
import subprocess
import sys

import submitit

from fedlib import __version__

SCHEMA = 1


class Run(submitit.helpers.Checkpointable):
    def __call__(self, home: str, spec: dict) -> None:
        # Slurm's warning goes to every process of the job: this one heeds it, the run hears of it by `terminate`.
        command = ["env", "--ignore-signal=USR2", sys.executable, "-m", "fedlib", "run", "--spec", "-"]
        environment = os.environ | {"FEDLIB_HOME": home, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
        self.process.communicate(json.dumps(spec))
        if self.process.returncode:
            raise RuntimeError(f"fedlib run ended with {self.process.returncode}; this job's log says why")

    def checkpoint(self, home: str, spec: dict) -> submitit.helpers.DelayedSubmission:
        self.process.terminate()
        os.waitpid(self.process.pid, 0)  # not `wait`, in which this signal may have come
        return submitit.helpers.DelayedSubmission(Run(), home, spec)


plan, logs = sys.argv[1:]
with open(plan) as file:
    known = json.load(file)
planned = f"schema {known.get('schema')}, fedlib {known.get('version')}"
there = f"schema {SCHEMA}, fedlib {__version__}"
if planned != there:
    sys.exit(f"{plan} is of {planned}, this is {there}: make the plan again")
specs = [run["spec"] for run in known["runs"] if not run["stored"]]
executor = submitit.AutoExecutor(folder=logs, slurm_max_num_timeout=20)
executor.update_parameters(timeout_min=240, slurm_signal_delay_s=300)  # of these minutes, so many seconds to stop in
executor.update_parameters(cpus_per_task=1, mem_gb=4, slurm_array_parallelism=50)
jobs = executor.map_array(Run(), [known["home"]] * len(specs), specs) if specs else []
for job in jobs:
    job.result()
