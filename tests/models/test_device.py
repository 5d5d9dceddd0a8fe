"""The choice of the device: CUDA, then MPS, then the CPU. Availability is simulated; no GPU is needed."""

import os
import platform
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from cutaway.config import TrainConfig
from cutaway.data.batching import ImageBatch
from cutaway.errors import ConfigError, CutawayWarning
from cutaway.inference.training import launch
from cutaway.models import device as device_module
from cutaway.models.device import choose_device
from cutaway.nn import chunked_attention
from cutaway.train import distributed
from cutaway.train.optimizers import can_fuse
from cutaway.train.precision import choose_precision, compile_model

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


@pytest.fixture
def machine(monkeypatch):
    """Simulate a machine with these devices."""

    def simulate(*devices):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)
        if "mps" in devices:
            monkeypatch.setattr(device_module, "open_device", torch.device)

    return simulate


@pytest.mark.parametrize(
    ("devices", "expected"), [((), CPU), (("mps",), MPS), (("cuda",), CUDA), (("cuda", "mps"), CUDA)]
)
def test_auto_prefers_cuda_then_mps_then_the_cpu(machine, devices, expected):
    machine(*devices)
    assert choose_device("auto") == expected


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("auto", MPS), ("float32", MPS), ("bfloat16", MPS), ("float64", CPU), ("float16", CPU), ("int8", CPU)],
)
def test_auto_uses_the_cpu_if_mps_lacks_the_precision(machine, precision, expected):
    machine("mps")
    assert choose_device("auto", precision) == expected


def test_explicit_mps_without_the_precision_is_an_error(machine):
    machine("mps")
    assert choose_device("mps") == MPS
    with pytest.raises(ConfigError, match="the device 'mps' has no float64. Use the device 'cpu', or float32"):
        choose_device("mps", "float64")


def test_unavailable_device_is_an_error():
    with pytest.raises(ConfigError, match="the device 'gpu9' cannot be used here"):
        choose_device("gpu9")


@pytest.mark.parametrize(("fallback", "message"), [("1", "lacks run on the CPU"), ("0", "lacks raise an error")])
def test_mps_comes_with_a_notice(machine, monkeypatch, fallback, message):
    machine("mps")
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", fallback)
    with pytest.warns(CutawayWarning, match=f"the device is Apple's MPS. Operations that it {message}"):
        choose_device("auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CutawayWarning)
        choose_device("cpu")


@pytest.mark.parametrize(
    ("platform_name", "before", "expected"),
    [("darwin", "", "1"), ("linux", "", "None"), ("darwin", "import torch;", "None")],
    ids=["mac", "linux", "mac, torch first"],
)
def test_fallback_is_set_before_torch_is_imported(platform_name, before, expected):
    code = f"import os, sys; {before} sys.platform = {platform_name!r}; import cutaway;"
    code += "print(os.environ.get('PYTORCH_ENABLE_MPS_FALLBACK'), 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_ENABLE_MPS_FALLBACK"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.split() == [expected, str(bool(before))]


def test_users_fallback_setting_is_kept():
    code = "import os, sys; sys.platform = 'darwin'; import cutaway; print(os.environ['PYTORCH_ENABLE_MPS_FALLBACK'])"
    environment = {**os.environ, "PYTORCH_ENABLE_MPS_FALLBACK": "0"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert result.stdout == "0\n"


def test_precision_on_mps():
    assert choose_precision("auto", MPS) == "float32"
    assert choose_precision("bfloat16", MPS) == "bfloat16"
    with pytest.raises(ConfigError, match="'float16' is for CUDA, and the device is 'mps'"):
        choose_precision("float16", MPS)


def test_compile_on_mps(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: "compiled")
    model = torch.nn.Linear(2, 2)
    assert compile_model(model, TrainConfig(), MPS) is model
    assert compile_model(model, TrainConfig(), CUDA) == "compiled"
    with pytest.warns(CutawayWarning, match="torch.compile is experimental on MPS"):
        assert compile_model(model, TrainConfig(compile="yes"), MPS) == "compiled"


@pytest.mark.parametrize(("device", "expected"), [(CPU, True), (CUDA, True), (MPS, False)])
def test_fused_optimizers_are_not_used_on_mps(device, expected):
    assert can_fuse([SimpleNamespace(device=CPU), SimpleNamespace(device=device)]) == expected


def test_batches_are_copied_without_blocking_only_to_cuda(monkeypatch):
    calls = {}
    monkeypatch.setattr(torch.Tensor, "to", lambda self, to, non_blocking: calls.update({str(to): non_blocking}))
    for device in ("cpu", "mps", MPS, "cuda:0"):
        ImageBatch(tokens=1, images=torch.zeros(1), targets=torch.zeros(1)).to(device)
    assert calls == {"cpu": False, "mps": False, "cuda:0": True}


def test_random_state_of_mps(monkeypatch):
    states = [torch.tensor([1]), torch.tensor([2])]
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states[-1])
    monkeypatch.setattr(torch.mps, "set_rng_state", states.append)
    with chunked_attention.keep_random_state(MPS):
        chunked_attention.set_random_state(MPS, states[0])
    assert [int(state) for state in states] == [1, 2, 1, 2]


def test_one_process_on_mps(machine):
    machine("mps")
    assert distributed.join_process_group(TrainConfig()).device == MPS
    assert distributed.join_process_group(TrainConfig(precision="float64")).device == CPU
    with pytest.raises(ConfigError, match="the device 'mps' has no float64"):
        distributed.join_process_group(TrainConfig(device="mps", precision="float64"))


def test_several_processes_use_the_cpu_instead_of_mps(machine, monkeypatch):
    machine("mps")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "SharedMemoryGroup", lambda device, while_connecting: device)
    assert distributed.join_process_group(TrainConfig()) == CPU
    with pytest.raises(ConfigError, match="train.device = 'mps' and several processes cannot be combined"):
        distributed.join_process_group(TrainConfig(device="mps"))


@pytest.mark.parametrize(("system", "processor", "expected"), [("darwin", "arm64", 1), ("darwin", "x86_64", 2)])
def test_a_mac_with_mps_starts_one_process(monkeypatch, system, processor, expected):
    monkeypatch.setattr(launch, "version", lambda name: "2.6.0")
    monkeypatch.setattr(launch, "cores", lambda: 2)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: processor)
    config = SimpleNamespace(
        train=TrainConfig(), model=SimpleNamespace(task="translation"), data=SimpleNamespace(batch_tokens=10_000)
    )
    assert launch.choose_process_count(config) == expected
