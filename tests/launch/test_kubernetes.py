"""Manifests of `--launch=kubernetes`: as Kubernetes and JobSet want them, and what they mean."""

import json
import re
import stat
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from wording import says

from runner import errors, main

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "tests" / "helpers" / "jobset_schema.json"
CONFIG = ["--gin_file=digits.gin", "--gin.LaunchConfig.image='example.org/runner:1'"]
WORKERS = "--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'"
VOLUME = "--gin.LaunchConfig.volumes=('data:/data','runs:/runs')"
TRAIN = ["--mode=train", *CONFIG, VOLUME, "--model_dir=/runs/digits"]


@pytest.fixture
def manifest(capsys):
    """The checked manifest of a command, with settings of LaunchConfig."""

    def make(*arguments, **settings):
        settings = [f"--gin.LaunchConfig.{name}={value!r}" for name, value in settings.items()]
        code = main.main(["--launch=kubernetes", "--dry_run", *arguments, *settings])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        made = yaml.safe_load(printed.out)
        check(made)
        return made

    return make


def check(made):
    """Raises if an API server with JobSet would not know a field, or its value."""
    if made["kind"] == "Job":
        kubernetes_validate.validate(made, "1.37", strict=True)
        return
    jsonschema.validate(made, strict(json.loads(SCHEMA.read_text())))
    for each in made["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}
        kubernetes_validate.validate({**job, **each["template"]}, "1.37", strict=True)


def strict(schema):
    """The schema, refusing what it does not know."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def pod_of(made):
    spec = made["spec"]
    spec = spec["replicatedJobs"][0]["template"]["spec"] if made["kind"] == "JobSet" else spec
    return spec["template"]["spec"]


def refused(capsys, *arguments):
    assert main.main(["--launch=kubernetes", "--dry_run", *arguments]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    return printed.err


def test_one_worker_is_a_job_that_runs_the_same_command(manifest):
    made = manifest(*TRAIN, cpus=4, gpus=1, memory_gb=8.0, time="2:00:00", queue="team", name="a")
    assert made["kind"] == "Job"
    assert made["metadata"] == {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    pod = pod_of(made)
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod["activeDeadlineSeconds"] == 7200
    (container,) = pod["containers"]
    command = container["command"]
    assert command[:4] == ["python", "-m", "runner.launch.start", "--launcher=kubernetes"]
    assert "--folder=/runs/digits" in command
    assert command[command.index("--") :][:6] == [
        *("--", "python", "-m", "runner", "--mode=train", "--model_dir=/runs/digits")
    ]
    assert "--gin_file=digits.gin" in command
    memory = {"memory": "8192Mi"}
    assert container["resources"]["requests"] == {"cpu": "4"} | memory
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"} | memory
    claims = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
    mounts = {claims[each["name"]]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"data": "/data", "runs": "/runs"}
    assert f"--uid {pod['securityContext']['fsGroup']} " in (ROOT / "Dockerfile").read_text()


def test_what_is_preempted_does_not_count_and_what_is_wrong_ends_the_job(manifest):
    job = manifest(*TRAIN, tries=4)["spec"]
    first, second, third = job["podFailurePolicy"]["rules"]
    final = {kind.exit_code for kind in errors.RunnerError.__subclasses__()} - {1}
    assert (first["action"], set(first["onExitCodes"]["values"])) == ("FailJob", final)
    assert second["action"] == "Ignore"
    assert second["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert (third["action"], third["onExitCodes"]["values"]) == ("Ignore", [143])
    names = {each["onExitCodes"]["containerName"] for each in (first, third)}
    assert names == {pod_of({"kind": "Job", "spec": job})["containers"][0]["name"]}
    assert job["backoffLimit"] == 4


def test_many_workers_are_a_jobset_whose_pods_know_each_other(manifest):
    made = manifest(*TRAIN, WORKERS, nodes=3, name="wide")
    assert made["kind"] == "JobSet"
    assert made["spec"]["network"]["subdomain"] == "wide"
    (worker,) = made["spec"]["replicatedJobs"]
    job = worker["template"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    container = pod_of(made)["containers"][0]
    index, config = container["env"][-2:]
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    seen = json.loads(config["value"].replace(f"$({index['name']})", "2"))
    assert seen["task"] == {"type": "worker", "index": 2}
    (port,) = container["ports"]
    assert seen["cluster"]["worker"] == [
        f"wide-{worker['name']}-0-{pod}.wide:{port['containerPort']}" for pod in range(3)
    ]
    assert "--by_status" in container["command"]


def test_a_study_is_an_indexed_job_of_workers_that_share_its_trials(manifest):
    made = manifest("--mode=study", "--seeds=9", *TRAIN[1:], nodes=3)
    assert (made["kind"], made["spec"]["completionMode"]) == ("Job", "Indexed")
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (3, 3)
    assert "TF_CONFIG" not in str(made)


def test_an_evaluator_runs_beside_training_and_ends_after_it(manifest):
    pod = pod_of(manifest(*TRAIN, "--allow_config_change", evaluator=True, gpus=1))
    (beside,) = pod["initContainers"]
    assert beside["restartPolicy"] == "Always"
    assert beside["command"][3:] == [
        *("--mode=continuous_eval", "--model_dir=/runs/digits", "--gin_file=digits.gin"),
        *[each for each in pod["containers"][0]["command"] if each.startswith("--gin_params")],
        "--params_override=runtime.num_gpus=0",  # the GPU is the other container's
    ]
    assert "resources" not in beside
    assert beside["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "120"]
    assert beside["volumeMounts"] == pod["containers"][0]["volumeMounts"]


def test_a_bucket_needs_no_volume(manifest):
    made = manifest("--mode=report", "--model_dir=s3://bucket/run", CONFIG[1], service_account="a")
    assert pod_of(made)["serviceAccountName"] == "a"
    assert "volumes" not in pod_of(made)


def test_variables_come_from_here_and_secrets_stay_in_the_cluster(manifest, monkeypatch):
    monkeypatch.setenv("SOME_PLACE", "here")
    made = manifest(*TRAIN, environment=("SOME_PLACE", "A=b"), secret_names=("wandb",))
    container = pod_of(made)["containers"][0]
    assert container["env"] == [
        {"name": "SOME_PLACE", "value": "here"},
        {"name": "A", "value": "b"},
    ]
    assert container["envFrom"] == [{"secretRef": {"name": "wandb"}}]


def expanded(value, variables):
    """A command's word, or a variable's value, as a container gets it (`Expand` of Kubernetes).

    `$$` is `$`, a known `$(NAME)` its value; everything else stays.
    """
    made, at = "", 0
    while at < len(value):
        if value.startswith("$$", at):
            made, at = made + "$", at + 2
        elif value.startswith("$(", at) and ")" in value[at:]:
            end = value.index(")", at)
            made += variables.get(value[at + 2 : end], value[at : end + 1])
            at = end + 1
        else:
            made, at = made + value[at], at + 1
    return made


DOLLARS = (
    "$",
    "$$",
    "a$",
    "$$$",
    "$(A)",
    "$$(A)",
    "$$$(A)",
    "$(",
    "$$$$(A)$",
    "${A}",
    "$A $B",
    "$)",
)


def test_the_rule_of_expansion_is_that_of_kubernetes():
    rows = {
        "$(A)-1": "x-1",
        "$$(A)_$(A)": "$(A)_x",
        "f000-$$A": "f000-$A",
        "$?_boo_$!": "$?_boo_$!",
        "$$$$$$(A)": "$$$(A)",
        "$$$$$$$(A)": "$$$x",
        "$(A)b$": "xb$",
        "$(B)": "$(B)",
        "a$(A": "a$(A",
    }
    assert {value: expanded(value, {"A": "x"}) for value in rows} == rows


@pytest.mark.parametrize("value", DOLLARS)
def test_dollar_signs_reach_the_container_as_they_were(manifest, value):
    tags = f"--gin.RunConfig.notes={value!r}"
    made = manifest(*TRAIN, tags, environment=("A=x", f"B={value}"), evaluator=True)
    pod = pod_of(made)
    for container in (*pod["containers"], *pod["initContainers"]):
        known = {}
        for each in container["env"]:
            known[each["name"]] = expanded(each["value"], known)
        assert known == {"A": "x", "B": value}
        words = [expanded(word, known) for word in container["command"]]
        assert f"--gin_params=RunConfig.notes={value!r}" in words


@pytest.mark.parametrize(
    ("folder", "name"),
    [("digits", "digits"), ("Digits_2", "digits-2-[0-9a-f]{6}"), ("2", "run-2-[0-9a-f]{6}")],
)
def test_a_folder_makes_a_name_that_kubernetes_takes(manifest, folder, name):
    found = [manifest(*TRAIN[:-1], f"--model_dir=/runs/{folder}")["metadata"]["name"] for _ in "ab"]
    assert found[0] == found[1]
    assert re.fullmatch(name, found[0])


def test_a_long_name_leaves_room_for_those_of_the_pods(manifest):
    made = manifest(*TRAIN[:-1], f"--model_dir=/runs/{'long-' * 30}", WORKERS, nodes=99)
    host = json.dumps(made).partition('"worker')[2]
    assert len(made["metadata"]["name"]) <= 40, host


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gin.LaunchConfig.name='My_Run'"], "no my-run"),
        (["--gin.LaunchConfig.image=''"], "LaunchConfig.image missing"),
        (["--gin.LaunchConfig.namespace='My_NS'"], "namespace My_NS"),
        (["--gin.LaunchConfig.secret_names=('a','B')"], "secret_names 'B'"),
        (["--model_dir=/else/digits"], "lost pod"),
        (["--gin_file=/here/mine.gin"], "mine.gin"),
        (["--gin.LaunchConfig.volumes=('runs',)"], "tuple claim:/path"),
        (["--gin.LaunchConfig.volumes=('runs:/runs','data:/runs/')"], "LaunchConfig.volumes path"),
        (["--gin.LaunchConfig.node_labels=('gpu',)"], "tuple label=value"),
        (["--gin.LaunchConfig.options=('--a',)"], "--launch=slurm"),
        (["--gin.LaunchConfig.evaluator=True", "--mode=eval"], "job"),
        (["--gin.LaunchConfig.environment=('WANDB_API_KEY',)"], "LaunchConfig.secret_names"),
        (["--gin.LaunchConfig.environment=('MY_PLACE',)"], "MY_PLACE looks"),
        (["--gin.RunConfig.notes='it is sesame-open'"], "show MY_PASSWORD secret"),
    ],
)
def test_what_would_not_run_there_is_refused_here(capsys, monkeypatch, arguments, said):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789")
    monkeypatch.setenv("MY_PASSWORD", "sesame-open")
    monkeypatch.setenv("MY_PLACE", "postgres://me:0123456789@host/runs")
    told = refused(capsys, *TRAIN, *arguments)
    says(told, said)
    assert "0123456789" not in told


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A kubectl that keeps what it is given and answers as it is told."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    def answer(said, code=0):
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir(exist_ok=True)
        stream = ">&2" if code else ""
        program.write_text(
            f'#!/bin/sh\n[ "$1" = get ] && echo localqueue.kueue.x-k8s.io/team && exit 0\n'
            f"cat > {tmp_path}/given; echo '{said}' {stream}; exit {code}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IEXEC)

    return answer


def test_a_job_is_submitted_by_kubectl(tmp_path, capsys, kubectl):
    kubectl("job.batch/digits created")
    assert main.main(["--launch=kubernetes", *TRAIN, "--gin.LaunchConfig.namespace='mine'"]) == 0
    told = json.loads(capsys.readouterr().out)
    check(yaml.safe_load((tmp_path / "given").read_text()))
    assert told["job"] == "digits"
    assert told["log"] == "kubectl logs --follow --namespace=mine job/digits"
    assert told["cancel"] == "kubectl delete job digits --namespace=mine"
    assert not Path("/runs/digits").exists()


@pytest.mark.parametrize(
    ("answer", "more", "code", "said"),
    [
        (("Error from server (AlreadyExists): digits", 1), [], 1, "Job digits"),
        (("no matches for kind JobSet", 1), [], 1, "cluster JobSet"),
        (("connection refused", 1), [], 1, "kubectl connection"),
        (("created",), ["--gin.LaunchConfig.queue='tem'"], 2, "no queue"),
    ],
)
def test_what_the_cluster_refuses_is_said_plainly(capsys, kubectl, answer, more, code, said):
    kubectl(*answer)
    assert main.main(["--launch=kubernetes", *TRAIN, *more]) == code
    says(capsys.readouterr().err, said)


def test_without_kubectl_a_line_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main.main(["--launch=kubernetes", *TRAIN]) == 1
    says(capsys.readouterr().err, "no kubectl")


def test_the_dockerfile_copies_what_is_there_onto_a_python_that_the_runner_takes():
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / each).exists() for each in sources), line
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r"^FROM python:([\d.]+)", text, re.MULTILINE)[1]
    assert project["requires-python"] == f">={version}"
    assert "-c /opt/runner/constraints.txt" in text
    extras = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
