"""Which workers train one run, as TF_CONFIG, flags or Slurm say."""

import json

import pytest
from wording import saying

from runner.devices import cluster
from runner.errors import ConfigError


def tf_config(workers, kind="worker", index=0, **more):
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers, **more}, "task": task})}


def test_tf_config_names_the_workers():
    found = cluster.find(tf_config(["a:1", "b:2"], index=1))
    assert (found.hosts, found.index, found.is_chief) == (("a:1", "b:2"), 1, False)
    assert found.name(0) == "worker 0 (a:1)"
    assert cluster.find({"TF_CONFIG": found.tf_config()}) == found


def test_a_chief_of_tf_config_comes_first():
    found = cluster.find(tf_config(["b:2"], chief=["a:1"]))
    assert (found.hosts, found.index) == (("a:1", "b:2"), 1)
    assert cluster.find(tf_config(["b:2"], kind="chief", chief=["a:1"])).is_chief


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": "{}"}, tf_config(["a:1"], kind="evaluator")])
def test_a_process_may_be_on_its_own(environ):
    assert cluster.find(environ) is None


def test_tf_config_counts_before_flags_and_these_before_slurm():
    assert cluster.find(tf_config(["a:1"]), "b:1,c:1", 1).hosts == ("a:1",)
    assert cluster.find(slurm("n[1-2]", "1(x2)", 2, 1), "b:1, c:1", 1).hosts == ("b:1", "c:1")


def slurm(nodes, tasks, size, index):
    return {
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_PROCID": str(index),
        "SLURM_JOB_ID": "20007",
    }


def test_slurm_has_a_worker_for_each_task():
    found = cluster.find(slurm("n[1-2],x", "2(x2),1", 5, 4))
    assert found.hosts == ("n1:12007", "n1:12008", "n2:12007", "n2:12008", "x:12007")
    assert found.index == 4
    assert cluster.find(slurm("n1", "1", 1, 0)) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[08-10,12],b", "n08 n09 n10 n12 b"),
        ("r[1-2]c[0-1]-ib", "r1c0-ib r1c1-ib r2c0-ib r2c1-ib"),
    ],
)
def test_slurm_writes_the_names_of_nodes_in_short(text, names):
    assert cluster.host_names(text) == names.split()


@pytest.mark.parametrize(
    ("environ", "hosts", "index", "said"),
    [
        ({"TF_CONFIG": "{"}, None, -1, "TF_CONFIG read"),
        ({"TF_CONFIG": "[]"}, None, -1, "TF_CONFIG read"),
        (tf_config(["a"]), None, -1, "'a' host port"),
        (tf_config(["a:1"], ps=["c:1"]), None, -1, "parameter servers"),
        (tf_config(["a:1"], kind="helper"), None, -1, "helper chief"),
        ({}, "a:1,b:1", -1, "task_index --task_index missing 2 workers"),
        ({}, "a:1,b:1", 2, "0 1 not 2"),
        ({}, "a:1,a:1", 0, "a:1 twice"),
        (slurm("n[1-2]", "1(x2)", 3, 0), None, -1, "3 tasks nodes 2"),
        ({**slurm("n1", "2", 2, 0), "SLURM_PROCID": "?"}, None, -1, "Slurm's environment"),
        (slurm("n[a-b]", "1(x2)", 2, 0), None, -1, "Slurm's environment"),
    ],
)
def test_what_describes_no_cluster_is_refused(environ, hosts, index, said):
    with pytest.raises(ConfigError, match=saying(said)):
        cluster.find(environ, hosts, index)
