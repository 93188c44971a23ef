"""Runs as jobs of a Slurm array, with submitit alone: no daemon, no workflow.

    pip install submitit && fedlib workflow copy workflow
    fedlib reproduce fedssa/table2 --scale record --plan json > plan.json
    python workflow/submit.py plan.json logs

FEDLIB_HOME, when the plan is made, must be on a folder that all nodes share; the plan remembers it. A job that runs out of
time or is preempted saves after its round and is put into the queue again, where it goes on. Runs whose jobs were cancelled,
killed or lost are submitted again, up to RETRIES times. A plan of another schema or another version of fedlib is refused.
"""

import json
import os
import subprocess
import sys
import time

import submitit

from fedlib import __version__

SCHEMA = 1
RETRIES = 3


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
executor = submitit.AutoExecutor(folder=logs, slurm_max_num_timeout=20)
executor.update_parameters(timeout_min=240, slurm_signal_delay_s=300)  # of these minutes, so many seconds to stop in
executor.update_parameters(cpus_per_task=1, mem_gb=4, slurm_array_parallelism=50)


def missing() -> list[dict]:
    """The plan's runs that are not in the store, whatever became of their jobs."""
    return [run for run in known["runs"] if not os.path.exists(f"{known['home']}/runs/{run['key']}/DONE")]


def queued(array: str) -> bool:
    """Whether Slurm still has a job of the array; an array that has been forgotten is an error of squeue's."""
    listed = subprocess.run(["squeue", "-h", "-j", array], capture_output=True, text=True)
    if listed.returncode and "Invalid job id" not in listed.stderr:
        return True  # no answer now: ask again
    return bool(listed.stdout.strip())


for _ in range(1 + RETRIES):
    left = missing()
    if not left:
        break
    jobs = executor.map_array(Run(), [known["home"]] * len(left), [run["spec"] for run in left])
    array = jobs[0].job_id.split("_")[0]
    print(f"array {array}: {len(left)} of {len(known['runs'])} runs", flush=True)
    while queued(array):
        time.sleep(5)
left = missing()
print(f"{len(known['runs']) - len(left)} of {len(known['runs'])} runs are stored")
if left:
    sys.exit(f"{logs} says what became of the others, such as {left[0]['key']}; the same command tries them again")
