"""Damaged, malicious and left-over files: the error names the file, before a large model is built."""

import errno
import json
import os
import random
import resource
import shutil
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import tokenizers
from damaging import copy_of, damage, files_of, flip
from foreign import write_theirs
from helpers import run_cutaway, tiny_of
from tokenizers import decoders, models, normalizers

import cutaway
from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig
from cutaway.config.checks import divisors
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, CutawayError, CutawayWarning, DataError, RunError
from cutaway.models.build import build_model
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import clear_leftovers, replacing_folder, write_json, write_text
from cutaway.runs.weights import check_sizes, seal_weights

OLD = Path(__file__).parents[1] / "fixtures/v0.1"
RUNS = ("translator", "base", "adapter", "resume")


@pytest.fixture(scope="module")
def sealed_runs(tmp_path_factory):
    """The old runs with checksums, and a classifier, which has labels."""
    home = Path(shutil.copytree(OLD, tmp_path_factory.mktemp("sealed") / "runs"))
    for name in RUNS:
        RunFolder(home / name).seal()
    run, tokenizer = RunFolder(home / "classifier"), Tokenizer.train(["a cat is a cat"], "word", 20)
    model = tiny_of("encoder", head="classes", vocab_size=tokenizer.vocab_size)
    run.path.mkdir()
    run.model.write_bytes(seal_weights(weights_to_bytes(build_model(model))))
    write_text(run.tokenizer, tokenizer.to_json())
    write_json(run.labels, ["cat", "dog", "other"])
    run.write_config(Config(model=model, data=DataConfig(tokenizer="word", max_tokens=32)))
    return home


def sealed_files(run: Path) -> list[Path]:
    unsealed = ("metrics.jsonl", "latest", "best")
    return [file for file in files_of(run) if file.name not in unsealed]


# Checksums.


def swap_ids(run: Path) -> None:
    tables = json.loads((run / "tokenizer.json").read_text())
    vocabulary = tables["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (run / "tokenizer.json").write_text(json.dumps(tables))


def swap_labels(run: Path) -> None:
    write_json(run / "labels.json", ["dog", "cat", "other"])


def other_heads(run: Path) -> None:
    tables = json.loads((run / "config.json").read_text())
    tables["model"]["n_heads"] = 4
    (run / "config.json").write_text(json.dumps(tables))


def other_tokenizer(run: Path) -> None:
    shutil.copyfile(run.parent / "translator/tokenizer.json", run / "tokenizer.json")


def new_roles(run: Path) -> None:
    write_json(run / "tokenizer_config.json", {"eos_token": "<s>"})


def no_labels(run: Path) -> None:
    (run / "labels.json").unlink()
    shutil.copyfile(run.parent / "translator/tokenizer.json", run / "tokenizer_config.json")


@pytest.mark.parametrize(
    ("change", "file"),
    [
        (swap_ids, "tokenizer.json"), (swap_labels, "labels.json"), (other_heads, "config.json"),
        (other_tokenizer, "tokenizer.json"), (new_roles, "tokenizer_config.json"), (no_labels, "labels.json"),
    ],
)  # fmt: skip
def test_error_names_the_changed_file(sealed_runs, tmp_path, change, file):
    home = copy_of(sealed_runs, tmp_path / "runs")
    change(home / "classifier")
    with pytest.raises(RunError, match=file.replace(".", r"\.")):
        cutaway.Classifier.load(home / "classifier")
    result = run_cutaway("runs", "runs", "--verify", cwd=tmp_path)
    assert result.returncode == 1
    assert "1 of 5 runs are damaged: runs/classifier" in result.stderr
    assert file in result.stdout
    if (home / "classifier/labels.json").is_file():
        assert "classifier is damaged" in run_cutaway("runs", "runs", cwd=tmp_path).stderr
        assert run_cutaway("runs", "runs/classifier", "--seal", cwd=tmp_path).returncode == 0
        RunFolder(home / "classifier").read_config()  # accepted as it is now


def test_every_flipped_bit_is_detected(sealed_runs, tmp_path):
    """A sample here; thousands in the slow tier."""
    flip_bits(sealed_runs, tmp_path, 150)


def flip_bits(sealed_runs: Path, tmp_path: Path, count: int) -> None:
    home, draw = copy_of(sealed_runs, tmp_path / "runs"), random.Random(1)
    runs = [*RUNS, "classifier"]
    files = [(run, file) for run in runs for file in sealed_files(home / run)]
    for _ in range(count):
        name, file = draw.choice(files)
        content = file.read_bytes()
        changed = flip(content, draw)
        file.write_bytes(changed)
        run = RunFolder(home / name)
        before = (sealed_runs / name / "config.json").read_bytes()
        problem = "".join(run.verify().values())
        if problem:
            assert file.name in problem or "config.json" in problem, (file, problem)
        else:  # white space in a header or in config.json
            assert same_content(file, content, changed), file
        file.write_bytes(content)
        assert (home / name / "config.json").read_bytes() == before


def same_content(file: Path, before: bytes, after: bytes) -> bool:
    if file.suffix == ".json":
        return json.loads(before) == json.loads(after)
    length = int.from_bytes(before[:8], "little")
    return before[8 + length :] == after[8 + length :] and json.loads(before[8 : 8 + length]) == json.loads(
        after[8 : 8 + length]
    )


def test_old_run_loads_with_a_note_and_can_be_sealed(tmp_path):
    run = copy_of(OLD / "translator", tmp_path / "translator")
    with pytest.warns(CutawayWarning, match="older version, without checksums.*--seal"):
        cutaway.Translator.load(run, engine="numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run_cutaway("translate", run, "red numbers: one two.", cwd=tmp_path)
    assert result.stdout == "Zahlen, eins zwei, rot.\n"
    assert result.stderr.startswith("Note: ")
    result = run_cutaway("runs", run, "--seal", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{run}: 3 of 3 files are intact\n")
    result = run_cutaway("translate", run, "red numbers: one two.", cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("Zahlen, eins zwei, rot.\n", "")


def test_metadata_of_an_adapter_is_sealed(sealed_runs, tmp_path):
    """The metadata has the kind of head and the checksum of the base."""
    run = RunFolder(copy_of(sealed_runs, tmp_path / "runs") / "adapter")
    content = seal_weights(run.adapter.read_bytes())  # as this version writes it
    run.adapter.write_bytes(content)
    run.read_weights()
    assert b'"head":"base"' in content
    run.adapter.write_bytes(content.replace(b'"head":"base"', b'"head":"bose"'))
    with pytest.raises(RunError, match=r"adapter.safetensors is damaged: its checksum"):
        run.read_weights()


# Small files that would hang the program or fill the memory.


@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 100_000_000_003}, {"d_model": 2**20}, {"encoder_layers": 10**5}, {"decoder_layers": 10**9},
        {"max_length": 10**12}, {"vocab_size": 10**15}, {"d_ff": 10**12}, {"n_heads": 10**6, "d_head": 1},
        {"position": "relative", "attention_kernel": "exact", "relative_clip": 10**9},
        {"position": "relative_bias", "relative_distance": 10**10},
    ],
    ids=str,
)  # fmt: skip
def test_huge_sizes_are_rejected_at_once(settings):
    started = time.monotonic()
    with pytest.raises(ConfigError, match="limit"):
        ModelConfig(**settings)
    assert time.monotonic() - started < 0.5


def test_other_limits():
    with pytest.raises(ConfigError, match="beam_size = 100000 is above the limit of 1,000"):
        DecodeConfig(beam_size=10**5)
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(999_983) == [1, 999_983]
    with pytest.raises(ConfigError, match="Choose n_heads from"):
        ModelConfig(d_model=999_983, n_heads=2)


def test_damaged_runs_do_not_hide_the_others(tmp_path):
    home = copy_of(OLD, tmp_path / "runs")
    for name, (key, value) in {"base": ("d_model", 100_000_000_003), "resume": ("encoder_layers", [10**9])}.items():
        tables = json.loads((home / name / "config.json").read_text())
        tables["model"][key] = value
        (home / name / "config.json").write_text(json.dumps(tables))
    (home / "adapter/config.json").write_text("[" * 100_000)
    started = time.monotonic()
    result = run_cutaway("runs", "runs", cwd=tmp_path)
    assert time.monotonic() - started < 2
    assert result.returncode == 0
    assert all(f"{name} is damaged: " in result.stderr for name in ("base", "resume", "adapter"))
    assert any(line.startswith("translator") and "finished" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("engine", ["torch", "numpy"])
@pytest.mark.parametrize("change", [{"d_model": 500_000}, {"d_ff": 9_999_999}, {"encoder_layers": 999}], ids=str)
def test_model_larger_than_its_weights_is_not_built(tmp_path, monkeypatch, engine, change):
    run = copy_of(OLD / "translator", tmp_path / "run")
    tables = json.loads((run / "config.json").read_text())
    tables["model"] |= change
    (run / "config.json").write_text(json.dumps(tables))
    for module in ("torch_engine", "numpy_engine"):
        monkeypatch.setattr(f"cutaway.inference.engines.{module}.build_model", lambda config: pytest.fail("built"))
    with pytest.raises(RunError, match=r"model.safetensors does not fit config.json: a model with .* layers"):
        cutaway.Translator.load(run, engine=engine)


@pytest.mark.parametrize(
    "config",
    [
        tiny_of(), tiny_of("decoder", experts=3, experts_per_token=2, n_kv_heads=1), tiny_of("vision"),
        tiny_of("encoder", head="classes", attention="linear"), tiny_of("encoder", head="vectors", d_head=6),
    ],
    ids=lambda config: config.family,
)  # fmt: skip
def test_intact_model_passes_the_size_check(config):
    """The check is a lower bound, so it accepts every intact model."""
    shapes = {name: tuple(weight.shape) for name, weight in build_model(config).named_parameters()}
    check_sizes(config, shapes, "here")


def replacements(times: int) -> list:
    return [normalizers.Replace("a", "aa")] * times


@pytest.mark.parametrize("part", ["normalizer", "decoder", "pre_tokenizer", "suffix"])
def test_tokenizer_rules_that_multiply_a_text_are_rejected(part):
    backend = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3}, unk_token="a"))
    if part == "normalizer":
        backend.normalizer = normalizers.Sequence(
            [normalizers.Sequence(replacements(20)), normalizers.Sequence(replacements(20))]
        )
    elif part == "decoder":
        backend.decoder = decoders.Sequence([decoders.Replace("a", "a" * 9)] * 12)
    elif part == "pre_tokenizer":
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.ByteLevel()] * 30)
    else:
        backend.model = models.BPE({"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3}, [], end_of_word_suffix="x" * 10_000)
    with pytest.raises(DataError, match="replace one character by more than 64"):
        Tokenizer.from_json(backend.to_str())
    backend.normalizer, backend.decoder = normalizers.Sequence(replacements(3)), decoders.Replace("▁", " ")
    if part in ("normalizer", "decoder"):
        Tokenizer.from_json(backend.to_str())


# Nothing outside the run folder is written or deleted, and no temporary files stay in it.


@pytest.mark.parametrize("flag", ["--overwrite", "--resume"])
@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "lock"])
def test_link_out_of_the_run_folder_is_rejected(tmp_path, flag, name):
    home = copy_of(OLD, tmp_path / "old")
    other = copy_of(home / "resume", tmp_path / "other")
    (other / "lock").write_text("")
    before = {file: file.read_bytes() for file in files_of(other)}
    target = home / "resume" / name
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    os.symlink(other / name, target)
    settings = ["--set", f"data.root={home}/texts", "--set", "train.steps=24", "--set", "train.save_every=2"]
    result = run_cutaway("train", home / "recipes/resume.toml", flag, "--run", home / "resume", *settings, cwd=tmp_path)
    assert result.returncode == 1
    assert f"{target} is a link to {other / name}" in result.stderr
    assert {file: file.read_bytes() for file in files_of(other)} == before


def old_file(path: Path) -> Path:
    path.write_text("half")
    os.utime(path, (1, 1))
    return path


def old_folder(path: Path) -> Path:
    path.mkdir()
    old_file(path / "model.safetensors")
    os.utime(path, (1, 1))
    return path


def test_temporary_files_of_a_killed_training_are_removed(tmp_path):
    run = RunFolder(copy_of(OLD / "resume", tmp_path / "resume"))
    leftovers = [
        old_folder(run.checkpoints / ".step_000040.ab_d3fgh"), old_file(run.path / ".model.safetensors.abcdefgh"),
        old_file(run.path / ".config.json.12345678"),
    ]  # fmt: skip
    users = [old_file(run.path / ".notes.txt.abcdefgh"), old_file(run.path / ".model"), old_folder(run.path / ".git")]
    with run.lock():
        assert not any(path.exists() for path in leftovers)
        assert all(path.exists() for path in users)


def test_files_in_use_are_not_removed(tmp_path):
    with replacing_folder(tmp_path / "exported") as temporary:
        (temporary / "file").write_text("new")
        os.utime(temporary, (1, 1))
        clear_leftovers(tmp_path)
        assert temporary.exists()
    assert (tmp_path / "exported/file").read_text() == "new"


def test_moved_folder_is_restored(tmp_path):
    """The process was killed between the two renames: neither the old folder nor the new one has its name."""
    (tmp_path / ".run.before.abcdefgh/run").mkdir(parents=True)
    (tmp_path / ".run.before.abcdefgh/run/weights").write_text("old")
    (tmp_path / ".run.hgfedcba").mkdir()
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    clear_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run/weights").read_text() == "old"


def test_other_names_are_not_checkpoints(tmp_path):
    run = RunFolder(copy_of(OLD / "resume", tmp_path / "resume"))
    for name in ("step_abc", "step_abc1", "step_", "step_9" + "9" * 30, "step_000030"):
        (run.checkpoints / name).mkdir()
    (run.checkpoints / "step_000050").write_text("a file")
    assert [path.name for path in run.list_checkpoints()] == ["step_000020", "step_000030"]
    run.prune_checkpoints(1)
    assert (run.checkpoints / "step_abc1").is_dir()
    assert run_cutaway("runs", run, cwd=tmp_path).returncode == 0


# Errors of the disk.


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("command", ["export", "seal", "train"])
def test_disk_that_cannot_be_written(tmp_path, monkeypatch, code, command):
    home = copy_of(OLD, tmp_path / "old")

    def fail(*args, **kwargs):
        raise OSError(code, os.strerror(code), str(kwargs.get("dir", "somewhere")))

    monkeypatch.setattr("cutaway.runs.files.tempfile.mkstemp", fail)
    monkeypatch.setattr("cutaway.runs.files.tempfile.mkdtemp", fail)
    result = run_cutaway(
        *{
            "export": ("export", home / "translator", tmp_path / "out", "--to", "hf"),
            "seal": ("runs", home / "translator", "--seal"),
            "train": (
                "train",
                home / "recipes/resume.toml",
                "--run",
                tmp_path / "new",
                "--set",
                f"data.root={home}/texts",
            ),
        }[command],
        cwd=tmp_path,
    )
    assert result.returncode == 1
    assert f"{os.strerror(code)}. " in result.stderr
    assert "Traceback" not in result.stderr


# Random damage of all kinds: a few cases here, hundreds in the slow tier.


def commands_for(name: str, run: Path, home: Path) -> list[tuple]:
    uses = {"translator": ("translate", run, "red numbers: one."), "resume": ("translate", run, "one two")}
    use = uses.get(name, ("generate", run, "the "))
    resume = ("--resume", "--run", run, "--set", f"data.root={home}/texts", "--set", "train.steps=22")
    return [
        use, (*use, "--engine", "numpy"), ("runs", home), ("runs", run), ("runs", run, "--verify"), ("doctor", run),
        ("export", run, home / "hf", "--to", "hf"), ("export", run, home / "merged", "--to", "run"),
        ("train", home / "recipes/resume.toml", *resume) if name == "resume" else ("runs", run, "--json"),
    ]  # fmt: skip


def damage_runs(tmp_path: Path, count: int) -> None:
    for number in range(count):
        draw = random.Random(number)
        home = copy_of(OLD, tmp_path / "home")
        if draw.random() < 0.5:
            for name in RUNS:
                RunFolder(home / name).seal()
        name = draw.choice(RUNS)
        file = draw.choice(files_of(home / name))
        how = f"{name}/{file.name}: {damage(file, draw)}, number {number}"
        commands = commands_for(name, home / name, home)
        for command in (commands[0], *draw.sample(commands[1:], 2)):
            check_command(command, home, how)


def damage_theirs(tmp_path: Path, count: int) -> None:
    tiny = {"vocab_size": 40}
    gpt2 = {"position": "learned", "norm_placement": "pre", "feed_forward": "gelu_tanh", "embedding_scale": "one"}
    llama = {"position": "rope", "norm": "rms", "norm_placement": "pre", "bias": False, "feed_forward": "swiglu",
             "embedding_scale": "one"}  # fmt: skip
    kinds = {
        "gpt2": (tiny_of("decoder", **tiny, **gpt2), "generate"),
        "llama": (tiny_of("decoder", **tiny, **llama), "generate"),
        "marian": (tiny_of(feed_forward="gelu", output_bias=True, **tiny), "translate"),
        "vit": (tiny_of("vision", position="learned", norm_placement="pre", feed_forward="gelu"), ""),
    }
    for name, (config, _) in kinds.items():
        write_theirs(tmp_path / "whole" / name, config)
        if config.family != "vision":
            write_json(tmp_path / "whole" / name / "generation_config.json", {"num_beams": 3, "max_length": 20})
    for number in range(count):
        draw = random.Random(number)
        name = draw.choice(list(kinds))
        theirs, run = copy_of(tmp_path / "whole" / name, tmp_path / "theirs"), tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        file = draw.choice(files_of(theirs))
        how = f"{name}/{file.name}: {damage(file, draw)}, number {number}"
        use = kinds[name][1]
        if check_command(("import", theirs, run), tmp_path, how) == 0 and use:
            check_command((use, run, "w7 w8 w9"), tmp_path, how)


def check_command(command: tuple, cwd: Path, how: str) -> int:
    """The command succeeds or prints an error message, within seconds."""
    started = time.monotonic()
    try:
        result = run_cutaway(*command, cwd=cwd)
    except Exception as error:
        raise AssertionError(f"{command[0]} of {how}") from error
    assert time.monotonic() - started < 5 * SLOWNESS, (command, how)
    assert result.returncode in (0, 1, 3), (command, how, result.stderr)  # 3: the doctor found a problem
    assert "Traceback" not in result.stderr, (command, how, result.stderr)
    if result.returncode == 1:
        assert "error: " in result.stderr, (command, how)
    return result.returncode


SLOWNESS = 4  # other tests run at the same time


def test_damaged_folders(tmp_path):
    damage_runs(tmp_path, 3)
    damage_theirs(tmp_path, 8)


@pytest.mark.slow
def test_many_damaged_folders(tmp_path, sealed_runs):
    damage_runs(tmp_path, 200)
    damage_theirs(tmp_path, 500)
    flip_bits(sealed_runs, tmp_path, 5_000)
    if sys.platform == "linux":
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2_000_000  # kilobytes


def test_damage_raises_a_cutaway_error(tmp_path):
    """Random damage of an old config.json, which has no checksum."""
    for number in range(60):
        draw = random.Random(number)
        run = copy_of(OLD / "translator", tmp_path / "run")
        damage(run / "config.json", draw)
        with suppress(CutawayError):
            RunFolder(run).require().read_config()
