"""A real Slurm of two virtual nodes on this machine, in a folder of its own, on free ports."""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
CONFIG = """
ClusterName=probe
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
{more}
KillWait=20
MinJobAge=600
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
InactiveLimit=0
NodeName=n[1-2] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{ports[1]}-{ports[2]}] CPUs=2 {memory}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why there can be no cluster here; empty if there can be one."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    absent = [each for each in PROGRAMS if not shutil.which(each, path=path)]
    return f"not installed: {', '.join(absent)} (Debian's slurm-wlm and munge)" if absent else ""


@contextlib.contextmanager
def running(folder, *, requeue_exit=False):
    """Within the block, Slurm's commands talk to the cluster; `requeue_exit`: 143 is requeued."""
    folder = Path(folder)
    folder.chmod(0o755)
    for each in ("state", "spool/n1", "spool/n2"):
        (folder / each).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    file = folder / "slurm.conf"
    file.write_text(
        CONFIG.format(
            folder=folder,
            host=socket.gethostname(),
            user=getpass.getuser(),
            ports=free_ports(),
            more="RequeueExit=143" if requeue_exit else "",
            memory="RealMemory=1000 State=UNKNOWN",
        )
    )
    before = dict(os.environ)
    os.environ["SLURM_CONF"] = str(file)
    os.environ["PATH"] += ":/usr/sbin"
    started = []
    try:
        start(
            started,
            folder,
            ["munged", "--foreground", "--force", f"--key-file={key}"]
            + [f"--{name}={folder}/munge.{end}" for name, end in MUNGE],
        )
        wait_for((folder / "munge.socket").exists, folder)
        start(started, folder, ["slurmctld", "-D", "-f", str(file)])
        for node in ("n1", "n2"):
            start(started, folder, ["slurmd", "-D", "-N", node, "-f", str(file)])
        wait_for(lambda: "idle 2" in output("sinfo", "--noheader", "--format=%T %D"), folder)
        yield
        subprocess.run(["scancel", "--user", getpass.getuser()], check=False)
        wait_for(lambda: not output("squeue", "--noheader"), folder)
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        os.environ.clear()
        os.environ.update(before)


MUNGE = (
    ("socket", "socket"),
    ("pid-file", "pid"),
    ("log-file", "log"),
    ("seed-file", "seed"),
)


def start(started, folder, command):
    with (folder / f"{len(started)}-{command[0]}.out").open("w") as out:
        started.append(
            subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        )


def free_ports():
    """Of the controller, and two in a row for the nodes."""
    while True:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            taken = [held.enter_context(socket.socket()) for _ in range(3)]
            taken[0].bind(("127.0.0.1", 0))
            taken[1].bind(("127.0.0.1", 0))
            taken[2].bind(("127.0.0.1", taken[1].getsockname()[1] + 1))
            return [each.getsockname()[1] for each in taken]


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def wait_for(done, folder=None, seconds=300):
    """Until `done()`; what the cluster says is shown if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := done()):
        if time.monotonic() > deadline:
            logs = sorted(Path(folder).glob("*.log")) if folder else []
            raise AssertionError("\n".join(each.read_text()[-2000:] for each in logs))
        time.sleep(0.1)
    return found
