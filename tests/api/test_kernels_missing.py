"""Where the Triton kernels cannot run, the reason is said: what is there, and what is needed."""

import importlib
import re
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attnbook import attention, attention_varlen, explain, moe
from attnbook.api import kernels
from attnbook.errors import BackendUnavailable
from attnbook.kernels import available
from tests.api.samples import inputs

choosing = importlib.import_module("attnbook.api.choose")


@pytest.fixture
def machine(monkeypatch):
    """A function that makes this machine look like another: its triton (None for none), its numpy, its GPU."""
    asked = (available.triton_module, available.interpreting, available.of_triton, available.of_device)

    def forget():
        for function in asked:
            function.cache_clear()

    def machine(triton="3.9.0", *, interpret=False, numpy_version=None, capability=(9, 0), hip=None):
        def imported(name):
            if isinstance(triton, Exception):
                raise triton
            knobs = SimpleNamespace(runtime=SimpleNamespace(interpret=interpret))
            return SimpleNamespace(__version__=triton, knobs=knobs)

        monkeypatch.setattr(available, "importlib", SimpleNamespace(import_module=imported))
        monkeypatch.setattr(numpy, "__version__", numpy_version or numpy.__version__)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.version, "hip", hip)
        forget()

    yield machine
    forget()


NONE = ModuleNotFoundError("No module named 'triton'")
INSTALL = "the kernels need 3.6 or newer"
TRITONS = {
    "none": (NONE, f"triton is not installed: {INSTALL} (on Linux: pip install 'attnbook[gpu]')"),
    "broken": (ImportError("libtriton.so: no such file"), "triton cannot be imported: libtriton.so: no such file"),
    "old": ("3.5.1", f"triton is 3.5.1: {INSTALL}"),
    "very old": ("2.10.0", f"triton is 2.10.0: {INSTALL}"),
}


@pytest.mark.parametrize("name", TRITONS)
def test_triton_itself(machine, name):
    """Not there, not to be loaded, or too old: said before anything about the tensors, in every door."""
    triton, text = TRITONS[name]
    machine(triton)
    packed, matrices = [torch.ones(5, 2, 3)] * 3, [torch.ones(1)] * 4
    for call in (
        lambda: attention(*inputs(torch.float64), impl="triton"),
        lambda: explain(*inputs(), impl="triton"),
        lambda: attention_varlen(*packed, [0, 5], [0, 5], impl="triton"),
        lambda: moe(torch.ones(7, 3), *matrices, top_k=1, impl="triton"),
    ):
        with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
            call()
    assert explain(*inputs()).rejected["triton"] == text


def test_an_old_interpreter_and_a_new_numpy(machine):
    """They do not go together, whatever the tensors are; from 3.7.1 on they do."""
    text = "triton 3.6.0 interprets with numpy below 2.4 only, and numpy is 2.4.1"
    machine("3.6.0", interpret=True, numpy_version="2.4.1")
    with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
        attention(*inputs(), impl="triton")
    machine("3.6.0", interpret=True, numpy_version="2.3.5")
    assert available.missing(inputs()[0]) is None
    machine("3.7.1+git5", interpret=True, numpy_version="2.4.1")
    assert available.missing(inputs()[0]) is None
    machine("3.6.0", numpy_version="2.4.1")
    assert available.of_triton() is None


DEVICES = {
    "a CPU": ("cpu", {}, "the tensors are on device cpu, and the kernels need an NVIDIA GPU; Triton's interpreter runs "
                         "them on a CPU where TRITON_INTERPRET=1 is set before the first call"),
    "another kind": ("meta", {}, "the tensors are on device meta, and the kernels need an NVIDIA GPU"),
    "an AMD GPU": ("cuda", {"hip": "6.2"}, "the tensors are on an AMD GPU, and the kernels need an NVIDIA GPU"),
    "an older GPU": ("cuda", {"capability": (7, 5)}, "the GPU has compute capability 7.5, and the kernels need 8.0 or "
                                                     "newer"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_the_device(machine, name):
    """A GPU of this make and age, or the interpreter; the advice about that one is for CPUs."""
    device, how, text = DEVICES[name]
    machine(**how)
    assert available.of_device(torch.device(device)) == f"triton: {text}"


def test_where_they_run(machine):
    """On the oldest GPU that will do; in the interpreter on CPUs, and whatever the GPU's age."""
    machine(capability=(8, 0))
    assert available.of_device(torch.device("cuda")) is None
    machine(interpret=True, capability=(7, 0))
    assert available.of_device(torch.device("cuda")) is None
    assert available.of_device(torch.device("cpu")) is None
    assert available.of_device(torch.device("meta")) is not None


def test_numbers_and_widths(machine):
    """float64, and rows that are too long or have no number, also where everything else is there."""
    machine(interpret=True)
    dtypes = "the kernels take float32, float16 and bfloat16"
    calls = {
        f"triton: the dtype is float64, and {dtypes}": inputs(torch.float64),
        "triton: q has head_dim 257 (axis d), and the kernels take 1 to 256": (torch.ones(1, 2, 5, 257),) * 3,
        "triton: v has d_v 263 (axis d), and the kernels take 1 to 256": (
            *(torch.ones(1, 2, 5, 256),) * 2, torch.ones(1, 2, 5, 263),
        ),
        "triton: v has d_v 0 (axis d), and the kernels take 1 to 256": (
            *(torch.ones(1, 2, 5, 256),) * 2, torch.ones(1, 2, 5, 0),
        ),
    }  # fmt: skip
    for text, tensors in calls.items():
        with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
            attention(*tensors, impl="triton")
        assert explain(*tensors).rejected["triton"] == text
        packed = [x[0].transpose(0, 1) for x in tensors]
        ends = [0, packed[0].shape[0]], [0, packed[1].shape[0]]
        with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
            attention_varlen(*packed, *ends, impl="triton")
        no_options = (None, None, None, False, None, None, None, "triton")
        with pytest.raises(BackendUnavailable, match=f"^{re.escape(text)}$"):
            torch.ops.attnbook.attention(*tensors, *no_options)
    shapes = ((7, 3), (2, 3), (2, 3, 5), (2, 3, 5), (2, 5, 3))
    with pytest.raises(BackendUnavailable, match=f"^triton: the dtype is float64, and {dtypes}$"):
        moe(*(torch.ones(shape, dtype=torch.float64) for shape in shapes), top_k=1, impl="triton")


def test_inside_transforms(machine):
    """What torch.func does to a call does not reach into a kernel."""
    machine(interpret=True)
    q = torch.ones(3, 1, 2, 5, 7)
    with pytest.raises(BackendUnavailable, match=r"^triton: torch\.vmap does not reach into a kernel$"):
        torch.vmap(lambda q: attention(q, q, q, impl="triton"))(q)
    with pytest.raises(BackendUnavailable, match=r"^triton has a backward of its own, which transforms of torch\.func"):
        torch.func.grad(lambda q: attention(q, q, q, impl="triton").sum())(q[0])
    shapes = ((2, 3), (2, 3, 5), (2, 3, 5), (2, 5, 3))
    matrices = [torch.ones(shape) for shape in shapes]
    with pytest.raises(BackendUnavailable, match="triton has a backward of its own"):
        torch.func.grad(lambda x: moe(x, *matrices, top_k=1, impl="triton")[0].sum())(torch.ones(7, 3))


def test_the_interpreter_is_never_chosen(machine):
    """Where it is on, "auto" takes on a CPU what it takes without it, and says why not the kernels."""
    machine(interpret=True)
    for options in ({}, {"softcap": 3.0}, {"is_causal": True, "window": 5, "return_lse": True}):
        said = explain(*inputs(), **options)
        assert said.impl in ("sdpa", "tiled")
        assert said.rejected["triton"] == "it can, in Triton's interpreter, which checks the kernels and is slow"
    assert not kernels.taken("auto", inputs()[0], 7, 5)
    assert not kernels.experts_taken("auto", torch.ones(7, 3))


def on_a_gpu(*tensors):
    """Tensors of these shapes that stand for some on a GPU; inside `FakeTensorMode`."""
    return [torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in tensors]


ON_A_GPU = {
    "a window": ("triton", torch.bfloat16, {"is_causal": True, "window": 5}),
    "slopes": ("triton", torch.bfloat16, {"alibi_slopes": torch.zeros(6)}),
    "a cap": ("triton", torch.float32, {"softcap": 3.0}),
    "sinks": ("triton", torch.float16, {"sinks": torch.zeros(6)}),
    "an lse": ("triton", torch.bfloat16, {"return_lse": True}),
    "values of another width": ("triton", torch.bfloat16, {}),
    "float64": ("tiled", torch.float64, {"softcap": 3.0}),
}


@pytest.mark.parametrize("name", ON_A_GPU)
def test_what_auto_takes_on_a_gpu(machine, monkeypatch, name):
    """The kernels where torch's own has not what is asked; the tiles where the kernels have not; nothing is run."""
    impl, dtype, options = ON_A_GPU[name]
    machine()
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = on_a_gpu(*inputs(dtype))
        options = {key: on_a_gpu(x)[0] if isinstance(x, torch.Tensor) else x for key, x in options.items()}
        # A tensor that only stands for one on a GPU is taken for one that a compiler traces.
        assert explain(*tensors, **options).impl == ("auto" if impl == "triton" else impl)
        monkeypatch.setattr(choosing, "traced", lambda q: False)
        said = explain(*tensors, **options)
        assert said.impl == impl
        machine(NONE)
        without = explain(*tensors, **options)
        assert (without.impl, "triton is not installed" in without.why) == ("tiled", True)
    if impl == "triton":
        assert said.rejected["tiled"] == "it can, in many steps of plain torch where a kernel is one"
    else:
        assert said.rejected["triton"].startswith("triton: the dtype is float64")


def test_what_torch_does_is_left_to_it_on_a_gpu(machine, monkeypatch):
    """Also where the kernels could: that they are as fast was not measured, and it is said so."""
    machine()
    monkeypatch.setattr(choosing, "traced", lambda q: False)
    with FakeTensorMode():
        said = explain(*on_a_gpu(*inputs(torch.bfloat16, t_kv=67, d_v=7)))
    assert said.impl == "sdpa"
    assert said.rejected["triton"] == "it can, and no measurement says that it is as fast here as torch's own"


def test_packed_sequences_on_a_gpu(machine, monkeypatch):
    """The same rule."""
    machine()
    monkeypatch.setattr(choosing, "traced", lambda q: False)
    with FakeTensorMode():
        q = torch.empty(5, 2, 7, dtype=torch.bfloat16, device="cuda")
        lacking = choosing.Packed("sdpa takes packed sequences without window only", None)
        assert choosing.choose_varlen(q, q, "auto", lacking).impl == "triton"
        assert choosing.choose_varlen(q.double(), q.double(), "auto", lacking).impl == "tiled"
        assert choosing.choose_varlen(q, q, "auto", choosing.Packed(None, None)).impl == "sdpa"
