"""Cross-validation by the data of each task."""

import itertools

import numpy as np
import pytest
import questions
import tensorflow as tf
import tf_keras
from image_files import write_npz
from official.core import config_definitions as cfg
from official.core import task_factory
from wording import saying, says

import runner
from runner import inputs, main
from runner.configuration import folding
from runner.errors import ConfigError
from runner.models import examples
from runner.runs.call import Call
from runner.studies import checks, worker
from tasks import aspect_sentiment, supervised
from tasks.aspects import aspect_data
from tasks.images import image_data, image_examples
from tasks.questions import question_data

SIDES = {"is_training": True}, {"is_training": False}


def both_sides(kind, read, fold, **fields):
    return [read(kind(folds=5, fold=fold, **side, **fields)) for side in SIDES]


def pixels(data):
    found = image_examples.read(image_data.source_of(data))
    assert data.size() == len(found.labels)
    return found.labels.numpy(), [image.tobytes() for image in found.images.numpy()]


def test_digits_are_stratified_and_all_of_them_validate():
    scored = []
    for fold in range(5):
        (labels, trained), (own, validated) = both_sides(image_data.ImageData, pixels, fold)
        assert len(trained) + len(validated) == 1797
        assert not set(trained) & set(validated)
        assert np.abs(np.bincount(own) - np.bincount(labels) / 4).max() <= 1.25
        scored += validated
    assert len(set(scored)) == 1797


def test_images_of_a_group_stay_together(tmp_path):
    patients = np.arange(60) // 4
    path = write_npz(tmp_path / "x.npz", 60, images=np.arange(60.0)[:, None, None], who=patients)

    def read(data):
        found = image_examples.read(image_data.source_of(data)).keys
        assert data.size() == len(found)
        return {*patients[found]}

    of_who = {"input_path": path, "fold_group": "who"}
    trained, validated = both_sides(image_data.ImageData, read, 1, **of_who)
    assert len(validated) == 3
    assert trained == {*range(15)} - validated
    with pytest.raises(ConfigError, match=saying("x.npz whom")):
        both_sides(image_data.ImageData, read, 1, input_path=path, fold_group="whom")
    with pytest.raises(ConfigError, match=saying("fold_group='who' digits")):
        both_sides(image_data.ImageData, read, 1, fold_group="who")


def test_the_aspects_of_a_sentence_stay_together_and_polarities_are_shared(tmp_path):
    file = tmp_path / "x.seg"
    aspects = [(n // 3, "ab"[n % 2], ("good", "bad")[n % 4 == 0]) for n in range(90)]
    file.write_text("".join(f"s{s} $T$ .\n{a}{s}\n{p}\n" for s, a, p in aspects))

    def read(data):
        return aspect_data.read(aspect_data.source_of(data))

    places = {"input_path": str(file), "split": "train"}  # folds come instead
    trained, validated = both_sides(aspect_data.AspectData, read, 0, **places)
    assert not {e.sentence for e in trained} & {e.sentence for e in validated}
    assert len(trained) + len(validated) == 90
    assert abs(sum(e.polarity == "bad" for e in validated) / len(validated) - 0.25) < 0.1


def test_a_polarity_of_one_fold_alone_is_a_class_in_all(tmp_path):
    file = tmp_path / "x.seg"
    kinds = ["good", "bad"] * 6 + ["odd"]
    file.write_text("".join(f"s{n} $T$ .\na\n{kind}\n" for n, kind in enumerate(kinds)))

    def task(fold):
        train, validation = (
            aspect_data.AspectData(input_path=str(file), folds=3, fold=fold, **side)
            for side in SIDES
        )
        config = aspect_sentiment.AspectSentimentConfig(
            train_data=train, validation_data=validation
        )
        return aspect_sentiment.AspectSentimentTask(config)

    assert {task(fold).polarities for fold in range(3)} == {("bad", "good", "odd")}


def test_questions_are_divided_by_article(tmp_path):
    ids = itertools.count()

    def asked(article, paragraph):
        text = f"The {article} house {paragraph} is red ."
        answers = [{"text": "red", "answer_start": text.index("red")}]
        question = {"id": f"q{next(ids)}", "question": "What is it ?", "answers": answers}
        return {"context": text, "qas": [question]}

    articles = [{"paragraphs": [asked(n, k) for k in range(1 + n)]} for n in range(6)]
    path = questions.written(tmp_path / "squad.json", {"data": articles})
    seen = []
    for fold in range(5):
        cache = {"input_path": path, "cache_folder": str(tmp_path / "cache")}
        found = both_sides(question_data.QuestionData, question_data.read, fold, **cache)
        trained, validated = (
            [context.split()[1] for context in one.squad.contexts] for one in found
        )
        assert not set(trained) & set(validated)
        assert len(trained) + len(validated) == 21
        seen += [question.id for question in found[1].squad.questions]
        assert all(len(one.windows) == len(one.squad.questions) for one in found)
    assert len(set(seen)) == len(seen) == 21


def test_made_up_questions_are_divided_by_context():
    trained, validated = both_sides(question_data.QuestionData, question_data.read, 3)
    assert (len(trained.squad.questions), len(validated.squad.questions)) == (2400, 600)
    once = question_data.QuestionData(is_training=True, folds=5, fold=3).once()
    assert len(question_data.read(once).squad.questions) == 2400


X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)


def network():
    made = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3)])
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"])
    return made


def test_arrays_of_fit_are_divided_and_the_fold_validates(tmp_path):
    def fit(*params, validation=None, epochs=2):
        given = ["SupervisedData.folds = 5", *params]
        folder = tmp_path / "run"
        options = {"model_dir": folder, "epochs": epochs, "batch_size": 12, "gin_params": given}
        return runner.fit(network, (X, Y), validation, **options)

    results = fit("SupervisedData.fold = 3")
    assert results["step"] == 8  # two epochs of 48 in batches of 12
    assert results["best"]["metrics"]["validation_loss"] > 0
    again = fit("SupervisedData.fold = 3")
    assert (again["step"], again["metrics"]) == (8, results["metrics"])
    with pytest.raises(ConfigError, match=r"task.train_data.fold: 3 -> 2"):
        fit("SupervisedData.fold = 2", epochs=3)
    with pytest.raises(ConfigError, match=saying("omit validation")):
        fit(validation=(X, Y))


def test_an_epoch_of_a_fold_of_groups_has_the_groups_examples(tmp_path):
    x = {"x": X, "who": np.repeat([0, 1, 2, 3], (30, 10, 12, 8))}

    def build():
        inputs = tf_keras.Input((4,), name="x")
        made = tf_keras.Model(inputs, tf_keras.layers.Dense(3)(inputs))
        made.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made

    given = ["SupervisedData.folds = 3", "SupervisedData.fold_group = 'who'"]
    for fold in range(3):
        made = runner.fit(
            build,
            (x, Y),
            model_dir=tmp_path / f"{fold}",
            epochs=2,
            batch_size=2,
            gin_params=[*given, f"SupervisedData.fold = {fold}"],
        )
        data = supervised.SupervisedData(folds=3, fold=fold, fold_group="who", is_training=True)
        assert made["step"] == examples.of_fold(examples.read((x, Y), "x", "who"), data, "x").size


def test_a_study_of_a_function_can_have_folds(tmp_path, capsys):
    made = runner.study(
        network,
        (X, Y),
        model_dir=tmp_path / "study",
        vary={"AdamExperimentalConfig.beta_1": [0.9]},
        epochs=1,
        jobs=1,
        gin_params=["StudyConfig.folds = 3"],
    )
    assert made["trials"] == {"done": 3}
    assert "task.validation_data" not in capsys.readouterr().err
    folders = sorted((tmp_path / "study" / "trials").iterdir())
    folds = [runner.Run(folder).param("task.train_data.fold") for folder in folders]
    assert folds == [0, 1, 2]


def test_examples_of_the_users_are_divided_by_class_and_group(tmp_path):
    def part(given, where="mine", group="", **fields):
        data = supervised.SupervisedData(folds=5, fold=1, fold_group=group, **fields)
        return examples.of_fold(examples.read(given, where, group), data, where)

    hot = np.eye(3)[Y]
    validated = part((X, hot), is_training=False)
    counts = np.bincount(Y)
    assert np.abs(validated.y.sum(axis=0) - counts / 5).max() < 1
    assert part((X, hot, np.ones(60)), is_training=True).weight.shape == (48,)

    who = np.arange(60) // 5
    own = part(({"x": X, "who": who}, Y), group="who", is_training=False).x["who"]
    rest = part(({"x": X, "who": who}, Y), group="who", part="train").x["who"]
    assert not set(own) & set(rest)
    np.savez(tmp_path / "x.npz", x=X, y=Y, who=who)
    alike = part(str(tmp_path / "x.npz"), group="who", is_training=False)
    np.testing.assert_array_equal(alike.group, own)
    with pytest.raises(ConfigError, match=saying("mine SupervisedData.fold_group='whom' key")):
        part(({"x": X, "who": who}, Y), group="whom")
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    with pytest.raises(ConfigError, match=saying("folds=5 mine tf.data.Dataset examples")):
        part(dataset)


def digits(*params):
    return runner.load("digits.gin", params)


def test_a_study_sets_folds_by_their_paths():
    experiment = digits()
    params = folding.parameters(experiment, 5, 2)
    assert sorted(params) == [
        f"task.{side}.{name}"
        for side in ("train_data", "validation_data")
        for name in ("fold", "folds")
    ]
    override = ",".join(f"{path}={value}" for path, value in params.items())
    folded = runner.load("digits.gin", overrides=[override]).task
    assert (folded.train_data.fold, folded.validation_data.folds) == (2, 5)
    experiment = cfg.ExperimentConfig(task=cfg.TaskConfig(train_data=inputs.DataConfig()))
    with pytest.raises(ConfigError, match=saying("folds derive DataConfig")):
        folding.parameters(experiment, 5, 2)


def written_articles(path, count):
    """SQuAD's JSON of articles with one question each."""
    asked = [(f"It is {n} .", [("What ?", [(str(n), 6)])]) for n in range(count)]
    (all_of_them,) = questions.document(*asked)["data"]
    articles = [{"paragraphs": [each]} for each in all_of_them["paragraphs"]]
    return questions.written(path, {"data": articles})


APART = {
    "digits.gin": ("ImageData", lambda path, n: write_npz(path, n, classes=3)),
    "aspects_tiny.gin": (
        "AspectData",
        lambda path, n: path.write_text(
            "".join(f"s{k} $T$ .\na\n{('good', 'bad')[k % 2]}\n" for k in range(n))
        ),
    ),
    "questions_tiny.gin": ("QuestionData", written_articles),
    "supervised.gin": ("SupervisedData", lambda path, n: np.savez(path, x=X[:n], y=Y[:n])),
}


@pytest.fixture
def of_study(name, tmp_path, monkeypatch):
    """A study's experiment of one fold, with a validation file beside the training file."""
    kind, write = APART[name]
    train, other = tmp_path / "train.npz", tmp_path / "other.npz"
    write(train, 30), write(other, 7)
    flags = {
        "gin_file": [name],
        "gin_params": [
            f"train/{kind}.input_path = {str(train)!r}",
            f"validation/{kind}.input_path = {str(other)!r}",
            "TrainerConfig.train_steps = 2",
            "TrainerConfig.steps_per_loop = 1",
            "EpochsConfig.train = 0",
            "RunConfig.tensorboard = False",
        ],
    }
    if kind == "SupervisedData":
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "net.py").write_text(NET)
        (tmp_path / "net.gin").write_text(
            "from __gin__ import dynamic_registration\nimport net\ninclude 'supervised.gin'\n"
            "SupervisedConfig.model = @net.build\n"
        )
        flags["gin_file"] = [str(tmp_path / "net.gin")]
    study = runner.load(flags["gin_file"], flags["gin_params"], overrides=["run.study.folds=5"])
    call = Call(study, tmp_path / "study")
    assert "other.npz" in folding.left_out(study)  # the fold validates
    facts = {"parameters": {}, "seed": 0, "fold": 1}
    return checks.load(call, worker.arguments(facts, checks.divided(call, facts)))


@pytest.mark.parametrize("name", APART)
def test_a_fold_of_a_study_validates_where_there_is_a_validation_file(of_study, tmp_path):
    task = of_study.task
    assert task.validation_data.input_path == str(tmp_path / "train.npz")
    assert (task.train_data.size(), task.validation_data.size()) == (24, 6)


@pytest.mark.parametrize("name", ["aspects_tiny.gin", "questions_tiny.gin"])
def test_a_fold_of_a_study_is_all_that_its_task_reads(of_study):
    task = task_factory.get_task(of_study.task)
    batches = task.build_inputs(of_study.task.validation_data)
    assert sum(len(tf.nest.flatten(labels)[0]) for _, labels in batches) == 6


@pytest.mark.parametrize("name", ["digits.gin", "supervised.gin"])
def test_a_run_of_a_study_keeps_its_fold(of_study, tmp_path):
    assert runner.run(of_study, tmp_path / "run", "train_and_eval")["step"] == 2
    again = runner.load(tmp_path / "run/config.gin")
    assert (again.task.validation_data.fold, again.task.validation_data.folds) == (1, 5)


NET = """
import tf_keras


def build():
    made = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dense(3, "softmax")])
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made
"""


def test_more_folds_than_examples_are_refused_before_a_trial_starts(tmp_path, capsys):
    flags = ["--mode=study", "--gin_file=digits.gin", f"--model_dir={tmp_path / 'study'}"]
    assert main.main([*flags, "--folds=1798"]) == 2
    says(capsys.readouterr().err, "folds=1798 1797 examples divide")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (["train/ImageData.folds = 5"], "task.validation_data.folds 0 5 task"),
        (
            ["ImageData.folds = 5", "train/ImageData.fold = 1"],
            "task.validation_data.fold 0 1 task.train_data training data",
        ),
        (["ImageData.folds = 5", "ImageData.fold = 5"], "5 below folds"),
        (
            ["ImageData.folds = 5", "validation/ImageData.fold_part = 'train'"],
            "fold_part train empty folds",
        ),
        (["ImageData.folds = 1"], "folds 1 2 0"),
        (
            ["ImageData.folds = 5", "TestConfig.data = @test/image_data.ImageData()",
             "test/ImageData.is_training = False", "test/ImageData.global_batch_size = 9"],
            "run.test.data.folds 5 0 test uses",
        ),
    ],
)  # fmt: skip
def test_folds_that_would_mislead_are_refused(params, message, tmp_path):
    with pytest.raises(ConfigError, match=saying(message)):
        runner.run(digits(*params), tmp_path / "run", "train", dry_run=True)


def test_folds_of_two_sources_and_of_too_few_examples_are_refused(tmp_path):
    path = write_npz(tmp_path / "x.npz", 7)
    many = digits("ImageData.folds = 9", f"ImageData.input_path = {path!r}")
    with pytest.raises(ConfigError, match=saying("folds=9 7 examples divide")):
        runner.run(many, tmp_path / "run", "train_and_eval", dry_run=True)
    two = digits("ImageData.folds = 5", f"train/ImageData.input_path = {path!r}")
    with pytest.raises(ConfigError, match=r"task.train_data reads .*x\.npz, task.validation_data"):
        runner.run(two, tmp_path / "run", "train_and_eval", dry_run=True)
