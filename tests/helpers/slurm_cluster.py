"""A real Slurm of two virtual nodes on this machine, in a folder of its own, on free ports.

With `apart`, each node has a network of its own (a network namespace behind a bridge), as two
machines have: workers on them meet by the nodes' names.
"""

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
SlurmctldHost={host}({addresses[0]})
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
NodeName=n1 NodeAddr={addresses[1]} NodeHostname={host} Port={ports[1]} CPUs=2 RealMemory=1000
NodeName=n2 NodeAddr={addresses[2]} NodeHostname={host} Port={ports[2]} CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


# What a node with a network of its own runs before its daemon: it waits for its end of the cable.
NODE = """
mount --bind {hosts} /etc/hosts
until ip link set {cable} up 2> /dev/null; do sleep 0.05; done
ip address add {address}/24 dev {cable}
ip link set lo up
exec "$0" "$@"
"""
NODES = ("n1", "n2")


def missing():
    """Why there can be no cluster here; empty if there can be one."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    absent = [each for each in PROGRAMS if not shutil.which(each, path=path)]
    return f"not installed: {', '.join(absent)} (Debian's slurm-wlm and munge)" if absent else ""


def not_apart():
    """Why nodes cannot have networks of their own here; empty if they can."""
    programs = ("ip", "unshare", "mount")
    if absent := [each for each in programs if not shutil.which(each)]:
        return f"not installed: {', '.join(absent)}"
    tried = "ip link add veth-tried type veth peer name veth-peer"
    command = ["unshare", "--net", "--mount", "sh", "-c", tried]
    may = subprocess.run(command, capture_output=True).returncode == 0
    return "" if may else "this user may not make networks (CAP_NET_ADMIN, CAP_SYS_ADMIN)"


@contextlib.contextmanager
def running(folder, *, requeue_exit=False, apart=False):
    """Within the block, Slurm's commands talk to the cluster.

    Args:
        folder: For its files; must be empty.
        requeue_exit: Whether the administrator has 143 requeued.
        apart: Whether each node has a network of its own.
    """
    folder = Path(folder)
    folder.chmod(0o755)
    for each in ("state", "spool/n1", "spool/n2"):
        (folder / each).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    network = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
    addresses = [f"{network}.{number}" for number in (254, 1, 2)] if apart else ["127.0.0.1"] * 3
    file = folder / "slurm.conf"
    file.write_text(
        CONFIG.format(
            folder=folder,
            host=socket.gethostname(),
            user=getpass.getuser(),
            ports=free_ports(),
            addresses=addresses,
            more="RequeueExit=143" if requeue_exit else "",
        )
    )
    hosts = folder / "hosts"
    names = "".join(map("{} {}\n".format, addresses[1:], NODES))
    hosts.write_text(f"127.0.0.1 localhost\n{names}")
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
        with bridge(addresses[0]) if apart else contextlib.nullcontext() as cable:
            start(started, folder, ["slurmctld", "-D", "-f", str(file)])
            for node, address in zip(NODES, addresses[1:], strict=True):
                daemon = ["slurmd", "-D", "-N", node, "-f", str(file)]
                if not apart:
                    start(started, folder, daemon)
                    continue
                script = NODE.format(hosts=hosts, cable=node, address=address)
                daemon = ["unshare", "--net", "--mount", "sh", "-ec", script, *daemon]
                start(started, folder, daemon)
                cable(node, started[-1].pid)
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


@contextlib.contextmanager
def bridge(address):
    """A bridge with this address; gives what lays a cable from it to a process's network."""
    name = f"br{os.getpid()}"

    def cable(node, pid):
        near, far = f"{node}-{os.getpid()}", f"{node}+{os.getpid()}"
        ip(f"link add {near} type veth peer name {far}")
        ip(f"link set {near} master {name} up")
        wait_for(lambda: network_of(pid) != network_of("self"))
        ip(f"link set {far} netns {pid} name {node}")

    ip(f"link add {name} type bridge")
    try:
        ip(f"address add {address}/24 dev {name}")
        ip(f"link set {name} up")
        yield cable
    finally:
        ip(f"link delete {name}")


def network_of(pid):
    return Path(f"/proc/{pid}/ns/net").readlink()


def ip(words):
    subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)


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
