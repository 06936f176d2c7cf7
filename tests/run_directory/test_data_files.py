from runner.run_directory import data_files


def of(path, **more):
    return data_files.fingerprints({"task": {"train_data": {"input_path": str(path), **more}}})


def test_a_file_has_a_fingerprint_of_its_content_wherever_it_is(tmp_path):
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.npz").write_text(text * 1000)
    first, copy, other = (
        of(tmp_path / name / "data.npz")[f"{tmp_path}/{name}/data.npz"] for name in "abc"
    )
    assert first == copy
    assert (first["files"], first["bytes"]) == (1, 1000)
    assert other["digest"] != first["digest"]


def test_folders_and_patterns_stand_for_their_files(tmp_path):
    for number in range(50):
        path = tmp_path / "images" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    (folder,) = of(tmp_path / "images").values()
    (pattern,) = of(tmp_path / "images" / "0" / "*.png").values()
    assert (folder["files"], pattern["files"]) == (50, 25)
    (tmp_path / "images" / "0" / "0.png").write_text("1")
    assert of(tmp_path / "images")[str(tmp_path / "images")] != folder


def test_the_sets_that_are_evaluated_count_and_what_is_no_file_does_not(tmp_path):
    (tmp_path / "noisy").write_text("x")
    configuration = {
        "task": {"train_data": {"input_path": "https://host/x", "name": "noisy"}, "path": ""},
        "run": {"evaluation_sets": [{"data": {"files": [str(tmp_path / "noisy"), "nowhere"]}}]},
    }
    assert list(data_files.fingerprints(configuration)) == [str(tmp_path / "noisy")]


def test_a_data_set_of_tfds_is_known_by_what_describes_it(tmp_path):
    version = tmp_path / "mnist" / "3.0.1"
    version.mkdir(parents=True)
    (version / "dataset_info.json").write_text("{}")
    (version / "mnist-train.tfrecord").write_text("x")
    (facts,) = of("", tfds_name="mnist", tfds_data_dir=str(tmp_path)).values()
    assert facts["files"] == 1
