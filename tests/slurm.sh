#!/bin/sh
# A Slurm of one node on loopback, for trying workflow/: everything it writes, also munge's key, is in one folder.
#
#     tests/slurm.sh install          # Debian and Ubuntu, as root: slurm-wlm and munge
#     tests/slurm.sh start FOLDER     # then: export SLURM_CONF=FOLDER/slurm.conf
#     tests/slurm.sh stop FOLDER
#
# Runs as whoever starts it, who is then its only user. No accounting (sacct answers nothing), no cgroups. While it runs,
# /etc/slurm/slurm.conf is a link to its own, since Snakemake's job steps do not hear of SLURM_CONF: that needs root, and
# a machine without a Slurm of its own.
# NODE_CPUS says how many processors it pretends to have (4): as many jobs run side by side.
set -eu
PATH=$PATH:/usr/sbin:/sbin
conf=/etc/slurm/slurm.conf

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

waits_for() { # seconds, what, command...
    left=$(($1 * 5)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || { echo "slurm.sh: waited in vain for $what" >&2; exit 1; }
        sleep 0.2
    done
}

idle() { sinfo -h -o %T | grep -q -E '^(idle|mixed|allocated)$'; }

start() {
    for command in munged slurmctld slurmd sbatch; do
        command -v $command >/dev/null || { echo "slurm.sh: $command is not installed; tests/slurm.sh install" >&2; exit 1; }
    done
    if [ ! -L $conf ] || SLURM_CONF=$conf timeout 10 scontrol ping 2>/dev/null | grep -q UP; then # a dead link may go
        [ ! -e $conf ] || { echo "slurm.sh: $conf is another Slurm's" >&2; exit 1; }
    fi
    mkdir -p ${conf%/*} && ln -sfn "$folder/slurm.conf" $conf
    mkdir -p "$folder/state" "$folder/spool" && chmod 700 "$folder"
    [ -s "$folder/munge.key" ] || (umask 077 && head -c 64 /dev/urandom >"$folder/munge.key")
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" --num-threads=2
    host=$(hostname -s) user=$(id -un)
    cat >"$folder/slurm.conf" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmdPort=$(port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,requeue_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=600
KillWait=30
NodeName=$host NodeAddr=127.0.0.1 CPUs=${NODE_CPUS:-4} RealMemory=100000 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF="$folder/slurm.conf"
    waits_for 10 munged test -S "$folder/munge.socket"
    slurmctld -i
    waits_for 30 slurmctld scontrol ping
    slurmd
    waits_for 60 'the node to be idle' idle
}

ends() { # pid file
    [ -s "$1" ] || return 0
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || return 0
    (waits_for 30 "the end of process $pid" sh -c "! kill -0 $pid") || kill -KILL "$pid" 2>/dev/null || true
}

stop() {
    export SLURM_CONF="$folder/slurm.conf"
    timeout 10 scancel --state=RUNNING --signal=KILL --user="$(id -un)" 2>/dev/null || true
    timeout 10 scancel --user="$(id -un)" 2>/dev/null || true
    for name in slurmd slurmctld munged; do ends "$folder/$name.pid"; done
    [ "$(readlink $conf)" != "$folder/slurm.conf" ] || rm $conf
}

case "${1:-}" in
install) apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends slurm-wlm munge ;;
start | stop)
    [ $# -eq 2 ] || { echo "slurm.sh: $1 needs a folder" >&2; exit 1; }
    mkdir -p "$2"
    folder=$(cd "$2" && pwd)
    "$1"
    ;;
*) sed -n 's/^#  *tests/tests/p' "$0" >&2 && exit 1 ;;
esac
