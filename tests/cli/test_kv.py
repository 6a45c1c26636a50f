"""`attnbook kv`: what it prints, what it refuses, and how soon."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnbook.cli import main

CONFIGS = Path(__file__).parents[1] / "costs" / "configs"
TIGHT = ("--model", "Llama-3.1-70B", "--context", "32768", "--requests", "24", "--gpu-memory", "80GiB")


@pytest.fixture
def kv(capsys):
    """Runs the command; its status, and what it printed on both streams."""

    def run(*arguments):
        status = main(["kv", *map(str, arguments)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_what_does_not_fit(kv):
    """The sizes, by how much it does not fit, and what would; status 1."""
    status, printed, _ = kv(*TIGHT)
    assert status == 1
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[0] == "model Llama-3.1-70B GQA, 80 layers, 64 query heads, 8 key/value heads of 128"
    assert "KV cache 240.0 GiB 24 × 32768 tokens, bfloat16, 4.0 KiB a token and layer" in lines
    assert "It does not fit: 291.4 GiB too much." in lines
    assert "5 GPUs 371.4 GiB of 400.0 GiB" in lines
    assert "a cache in float8, weights in int4 and 9 requests 77.9 GiB of 80.0 GiB" in lines


def test_what_fits(kv):
    """How much is left and how far one could go; status 0."""
    status, printed, _ = kv("--model", "llama-3.1-8b", "--context", "8_192", "--requests", 20, "--gpu-memory", "80GiB")
    assert status == 0
    assert "It fits: 45.0 GiB are left.\nUp to 65 requests of this length, or 26641 tokens" in printed


def test_without_memory_only_the_sizes(kv):
    """Nothing is judged; kinds of layers have a row each where there are several."""
    status, printed, _ = kv("--model", "Gemma-3-27B", "--context", 131072)
    assert status == 0
    assert "fit" not in printed
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert "full 10.0 GiB 10 layers, 131072 tokens of each request" in rows
    assert "window 416.0 MiB 52 layers, 1024 tokens of each request" in rows


def test_longer_than_the_model_was_made_for(kv):
    """It is said, and counted all the same."""
    _, printed, _ = kv("--model", "Llama-3-8B", "--context", 9000)
    assert "tokens are more than the 8192 the model was made for" in printed


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_any_config(kv, config):
    """Of every family of the tests, with the weights given; JSON holds the same numbers."""
    status, printed, _ = kv("--config", config, "--context", 997, "--weights", "1.5GB", "--gpu-memory", "1TB", "--json")
    data = json.loads(printed)
    assert status == 0
    assert data["fits"] is True
    assert data["weights_bytes"] == 1_500_000_000
    assert data["kv_cache_bytes"] == sum(layer["bytes"] for layer in data["layers"]) > 0
    assert data["changes"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--context", "7"), "give one of --model NAME (--list prints the names) and --config path/to/config.json"),
        (("--model", "Phi-4", "--config", "x.json", "--context", "7"), "give one of --model NAME"),
        (("--model", "Phi-4"), "--context N is needed"),
        (("--model", "Lama-3", "--context", "7"), "got 'Lama-3': did you mean Llama-3-8B"),
        (("--config", "no/such.json", "--context", "7"), "no/such.json"),
        (("--model", "Phi-4", "--context", "7", "--kv-dtype", "fp7"), "got 'fp7'"),
    ],
)
def test_what_cannot_be_counted(kv, arguments, said):
    """Why, in a line on standard error; status 2."""
    status, printed, error = kv(*arguments)
    assert (status, printed) == (2, "")
    assert error.startswith("attnbook kv: ")
    assert said in error


def test_weights_that_cannot_be_counted(kv, tmp_path):
    """The option that helps is named."""
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "unheard-of", "hidden_size": 64, "num_hidden_layers": 3, '
                    '"num_attention_heads": 4, "intermediate_size": 1, "vocab_size": 5}')  # fmt: skip
    status, _, error = kv("--config", path, "--context", 7)
    assert status == 2
    assert error.rstrip().endswith("as in --weights 14GiB")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--gpu-memory", "80", "expected a size with its unit, as 80GiB or 80GB, got '80'"),
        ("--gpu-memory", "80G", "got '80G'"),
        ("--weights", "1.GiB", "got '1.GiB'"),
        ("--context", "0", "expected a whole number of at least 1, got '0'"),
        ("--requests", "2.5", "expected a whole number of at least 1, got '2.5'"),
    ],
)
def test_sizes_have_units_and_counts_are_whole(kv, capsys, option, value, said):
    """The option is named."""
    with pytest.raises(SystemExit) as stopped:
        kv("--model", "Phi-4", "--context", "7", option, value)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert option in error
    assert said in error


def test_the_names(kv):
    """One a line, as --model takes them."""
    status, printed, _ = kv("--list")
    assert status == 0
    assert "gpt-oss-120b" in printed.splitlines()


def test_it_starts_at_once():
    """Without torch, and quicker than a command that only imports it could be: 0.3 s of a quiet core."""
    code = (
        "import sys, time; from attnbook.cli import main; "
        f"main(['kv', *{TIGHT!r}]); "
        "assert not {'torch', 'numpy', 'triton'} & set(sys.modules); print(time.process_time(), file=sys.stderr)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 30
    assert float(done.stderr) < 0.3  # of the processor: neighbours may keep it waiting
