"""What is a secret is masked, and what only sounds like one is left."""

import contextlib
import dataclasses
import json

import pytest
import toy
from official.core import task_factory

import runner
from runner.core import secrets
from runner.errors import RunnerError

SECRET = "s3cr3tVALUE+/x9="
NAMED = """\
password passwd pwd passphrase secret token auth api_key apiKey access_key private_key
secret_key AWS_SECRET_ACCESS_KEY HF_TOKEN GITLAB_TOKEN client_secret authToken SMTP_PASS db_pass
credentials ssh_key AccountKey signing_key api-key PGPASSWORD csrftoken OPENAI_KEY wandb_key"""

WRITTEN = {
    "a flag": "--gin.Cloud.{name}={secret}",
    "a quoted flag": "--gin.Cloud.{name}='{secret}'",
    "a string in a shell's quotes": "--gin.Cloud.{name}=\"'{secret}'\"",
    "a binding": "Cloud.{name} = '{secret}'",
    "a macro": "--gin.{name}='{secret}'",
    "YAML": "cloud: {{{name}: {secret}, size: 3}}",
    "JSON": '{{"{name}": "{secret}", "size": 3}}',
    "JSON in JSON": '{{\\"{name}\\": \\"{secret}\\", \\"size\\": 3}}',
    "a tuple": "Cloud.{name} = ('{secret}', 'b{secret}')",
    "a list": "{name}=[{secret}, b{secret}]",
    "a nested tuple": "{name} = (('me', '{secret}'),)",
    "Python": "+    {name} = b'{secret}'",
    "Python with a type": "+    {name}: str | None = '{secret}'",
    "three quotes": '{name} = """{secret}"""',
    "a comparison": "if {name} == '{secret}':",
    "a flag and its value": "prog --size 3 --{name} {secret}",
    "a line of YAML": "size: 3\n  {name}: {secret} and {secret}\nb: 1",
    "a URL's query": "https://host/a?x=1&{name}={secret}&y=2",
}

FORMS = [
    "https://me:{}@host/data",
    "https://me:p@{}@host/data",
    "https://{}@host/data",
    "https://me@example.com:{}@host",
    "https://host/a?sig={}&x=1",
    "https://host/a?se=1&sig={}",
    "https://host/a?key={}",
    "https://host/a?X-Amz-Signature={}",
    "https://host/a?X-Amz-Credential={}",
    "https://host/a?X-Amz-Security-Token={}",
    "https://host/a?X-Goog-Signature={}",
    "X-Amz-Signature={}",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "-H 'authorization: token {}'",
    "--gin.Cloud.headers='Bearer {}'",
    "Cloud.headers = {{'Authorization': 'Basic {}'}}",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core",
]

KEYS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "AIza" + "Sy_x" * 9,
    "ya29.a0AfB_byC1234567890",
    "GOCSPX-abcdefghijklmnop",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 8,
    "glpat-" + "xY12_" * 4,
    "xoxb-1234567890-abcdefghij",
    "xoxp-1234567890-abcdefghij",
    "xapp-1-A0B1C2-1234567890",
    "sk_live_" + "a1B2" * 6,
    "rk_test_" + "a1B2" * 6,
    "whsec_" + "a1B2" * 6,
    "hf_" + "a1B2" * 6,
    "sk-proj-" + "a1B2" * 6,
    "npm_" + "a1B2" * 9,
    "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 6,
    "SG." + "a1B2" * 5 + "." + "c3D4" * 8,
    "dapi" + "0a1b2c3d" * 4,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc+/=\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Blbn+/=\\n-----END OPENSSH PRIVATE KEY-----",
]

ORDINARY = """\
tokenizer=bert
tokenizer = 'wordpiece'
token_count=512
max_tokens=512
num_tokens: 3
mask_token='[MASK]'
pad_token = '<pad>'
cls_token: [CLS]
token=7
special_tokens=('[CLS]', '[SEP]')
author=Jane Doe
authors = ('Jane', 'Ann')
authentic=yes
auth=None
auth = True
password = %PASSWORD
password=
secretary = 'Ann'
passes=3
forward_pass = 12
compass='north'
key=value
keys=[1, 2]
primary_key = 'id'
monkey='ape'
public_key=abc
signature='serving_default'
signature=abc
image_key='image'
padtoken=abc
--token_count 7 --author me
token: str | None
password: str
Token classification
Basic english
sig=3
TrainerConfig.train_steps=2000
StepwiseLrConfig.values = (0.1, 0.01)
https://host:80/a
https://host/a@b?split=train&size=3
ssh://git@github.com/a/b.git
git@github.com:a/b.git
s3://bucket/folder/file-001.npz
basic regression of images
the bearer of certificates
AdamConfig.beta_1=0.9
task-specific-layers-of-a-network
sk-learn
+    token = tokenizer.next(line)
+def read(path: str, token: str) -> None:
+    password = getpass.getpass()
+    secret = os.environ["SECRET"]
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
a1b2c3d4-e5f6-7890-abcd-ef1234567890""".splitlines()


@pytest.mark.parametrize("written", WRITTEN)
def test_what_is_assigned_to_the_name_of_a_secret_is_masked(written):
    for name in NAMED.split():
        shown = secrets.masked(WRITTEN[written].format(name=name, secret=SECRET))
        assert SECRET not in shown
        assert name in shown
        for kept in ("size", "x=1", "y=2"):
            assert (kept in shown) == (kept in WRITTEN[written])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--gin.S3Config.secret_key=abc", "--gin.S3Config.secret_key=***"),
        ("task.api_key=abc,task.size=3", "task.api_key=***,task.size=3"),
        ('{"password": "a b", "x": 1}', '{"password": ***, "x": 1}'),
        ("AWS_SECRET_ACCESS_KEY: abc", "AWS_SECRET_ACCESS_KEY: ***"),
        ("https://me:pass@host/data", "https://me:***@host/data"),
        ("https://host/a?sig=abc&x=1", "https://host/a?sig=***&x=1"),
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("curl -H 'Bearer abc123'", "curl -H 'Bearer ***'"),
        ("--gin.Cloud.header='Bearer abcdefghij'", "--gin.Cloud.header='Bearer ***'"),
        ("passphrase: correct horse battery", "passphrase: ***"),
    ],
)
def test_only_the_secret_is_masked(text, shown):
    assert secrets.masked(text) == shown


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_where_a_secret_stands_is_masked(form):
    shown = secrets.masked(form.format(SECRET.replace("/", "_")))
    assert "cr3tVALUE" not in shown
    assert secrets.MASK in shown


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "--gin.Cloud.name='{}'", "+x = '{}'  # a", "a, {}; b"])
def test_a_key_of_a_known_form_is_masked_wherever_it_stands(key, around):
    shown = secrets.masked(around.format(key))
    assert shown == around.format(secrets.MASK)


def test_what_only_sounds_like_a_secret_is_not_masked():
    assert [secrets.masked(text) for text in ORDINARY] == ORDINARY
    assert secrets.masked("\n".join(ORDINARY)) == "\n".join(ORDINARY)


def test_values_are_masked_by_their_names_at_any_depth():
    values = {
        "run": {"auth": "abc", "author": "Ann", "steps": 3, "tokens": ["a"], "passwords": ("a",)},
        "gin_params": ["A.token='abc'", "A.size=3"],
        "command": ["mine.py", "--password", "abc", "--size", "abc"],
        "task.api_key": "abc",
    }
    assert secrets.masked_all(values) == {
        "run": {"auth": "***", "author": "Ann", "steps": 3, "tokens": ["a"], "passwords": ["***"]},
        "gin_params": ["A.token=***", "A.size=3"],
        "command": ["mine.py", "--password", "***", "--size", "abc"],
        "task.api_key": "***",
    }


@pytest.mark.parametrize("part", ["a", "(", "x = [", "x=", "http://a", "a: str", 'x = """ '])
def test_a_long_text_of_any_kind_is_gone_through_once(part):
    text = part * (500_000 // len(part))  # what looks back or ahead for each letter never ends
    assert secrets.masked(text) == text


@dataclasses.dataclass
class CloudConfig(toy.ToyConfig):
    password: str = ""
    address: str = ""


@task_factory.register_task_cls(CloudConfig)
class CloudTask(toy.ToyTask):
    """Needs a password."""


def leaks(folder):
    """The files that hold the password, but for those that build the experiment again."""
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and file.name not in ("params.yaml", "config.gin")
        if b"hunter2" in file.read_bytes()
    ]


def test_a_secret_of_the_configuration_is_masked_under_any_name(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["runner", "--gin.KEY='hunter2-and-more'", "--gin.NAME='a'"])
    made = toy.experiment()
    made.task = CloudConfig(password="hunter2-and-more", address="host/hunter2-and-more")
    runner.run(made, tmp_path, "train")
    (start,) = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert start["command"] == ["runner", "--gin.KEY='***'", "--gin.NAME='a'"]
    assert not leaks(tmp_path)

    def refused(self, *args, **kwargs):
        raise OSError(f"no access with {self.task_config.password}")

    monkeypatch.setattr(CloudTask, "validation_step", refused)
    with contextlib.suppress(RunnerError):
        runner.run(made, tmp_path, "continuous_eval")
    assert (tmp_path / "eval-continuous" / "traceback.txt").exists()
    assert not leaks(tmp_path)


def test_a_message_that_holds_a_secret_is_masked_in_the_folder(tmp_path, monkeypatch):
    def refused(self):
        raise OSError(f"no access with {self.task_config.password} (token=abc)")

    monkeypatch.setattr(CloudTask, "build_model", refused)
    made = toy.experiment()
    made.task = CloudConfig(password="hunter2-and-more")
    with pytest.raises(OSError, match="hunter2"):
        runner.run(made, tmp_path, "train")
    for file in ("status.json", "traceback.txt"):
        assert "no access with *** (token=***)" in (tmp_path / file).read_text()
        assert "hunter2" not in (tmp_path / file).read_text()
