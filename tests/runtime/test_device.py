"""Devices, the host CPU, the allocator, what is imported when, and programs over several devices."""

from __future__ import annotations

import dataclasses
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.programs import add
from tests.runtime.test_cache import python

from treadle.base import flags
from treadle.base.errors import UserError
from treadle.ir.types import f64
from treadle.runtime import device, memory, pjrt


def test_default_device_is_listed():
    assert device.default_device() in device.devices()
    assert str(device.devices("cpu")[0]) == "cpu:0 (cpu)"


def test_a_platform_that_is_not_there():
    with flags.override(platform="no_such_chip"), pytest.raises(UserError) as caught:
        device.default_device()
    assert caught.value.code == "E0408" and "no_such_chip" in str(caught.value)


def test_after_a_platform_that_is_not_there_another_can_be_started():
    code = """
from treadle.base import flags
from treadle.base.errors import UserError
from treadle.runtime import pjrt
try:
    pjrt.default_device()
except UserError as error:
    print(error.code)
with flags.override(platform="cpu"):
    print(pjrt.default_device().platform)
"""
    assert python(code, TREADLE_PLATFORM="no_such_chip") == "E0408\ncpu"


def test_hosts_that_differ_have_other_names():
    host = device.host()
    assert host.cores >= 1
    other = device.Host(host.machine, host.model, host.cores, host.flags ^ {"avx512f"})
    assert other.identity() != host.identity() == device.Host(*dataclasses.astuple(host)).identity()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_process_memory():
    before, size = memory.rss_bytes(), 32 << 20
    with mmap.mmap(-1, size) as block:  # not from the allocator, which may have memory left over
        block.write(bytes(size))
        assert memory.rss_bytes() - before > size // 2
    assert memory.peak_rss_bytes() >= size


def test_allocator_settings_come_before_jaxlib_and_can_be_switched_off():
    code = """
import sys
from treadle.base import events
from treadle.base import cache
from treadle.runtime import device, executable, memory, pjrt
assert not {"jax", "jaxlib", "ml_dtypes"} & set(sys.modules)
events.subscribe(lambda e: print(e.name, e.payload, "jaxlib" in sys.modules))
pjrt.client()
print(memory.tune_malloc())
"""
    on = python(code, TREADLE_MALLOC="1")
    if memory._glibc() is not None:
        assert on.startswith("malloc {'refused': [], 'huge': ") and on.endswith("} False\nTrue")
    assert python(code, TREADLE_MALLOC="0") == "False"


@pytest.mark.skipif(memory._glibc() is None, reason="glibc")
def test_the_allocator_settings_save_page_faults():
    code = """
import resource, numpy as np
from treadle.runtime import memory
memory.tune_malloc()
for _ in range(3): np.ones(1 << 26, np.uint8)  # above glibc's largest mmap threshold
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5): np.ones(1 << 26, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    on, off = (int(python(code, TREADLE_MALLOC=value)) for value in "10")
    assert on * 10 < off


@pytest.mark.skipif(memory._glibc() is None, reason="glibc")
def test_large_arrays_lie_on_huge_pages_where_the_system_has_them():
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not modes.exists() or "[never]" in modes.read_text():
        pytest.skip("no huge pages")
    code = """
import numpy as np
from pathlib import Path
from treadle.runtime import memory, pjrt
def huge():
    lines = Path("/proc/self/smaps").read_text().splitlines()
    heap = next(i for i, line in enumerate(lines) if line.endswith("[heap]"))
    found = [line.split()[1] for line in lines[heap:] if line.startswith("AnonHugePages")]
    return sum(int(kb) << 10 for kb in found)
pjrt.client()
assert memory.use_huge_pages()
before, held = huge(), pjrt.put(np.ones(1 << 24, np.float32))
print(huge() - before)
"""
    assert int(python(code, TREADLE_MALLOC="1")) > 48 << 20


def test_jax_settings_of_the_user_are_left_alone():
    code = """
import numpy as np, jax
from treadle.runtime import pjrt
before = dict(jax.config.values)
x = pjrt.put(np.array([2**40, 1]))
assert (pjrt.to_numpy(x) == [2**40, 1]).all()
assert dict(jax.config.values) == before, "changed"
print(jax.numpy.ones(2).dtype)
"""
    assert python(code) == "float32"


FOUR_DEVICES = """
import numpy as np
from tests.runtime.programs import add
from treadle.base.errors import UserError
from treadle.ir.types import f32, i64
from treadle.runtime import device, pjrt
from treadle.runtime.executable import Executable, Placement
devices = pjrt.devices()
assert len(devices) == 4
there = pjrt.put(np.array([2**40, 3]), devices[1])
assert there.devices() == {devices[1]}
on_first = add(i64[2])
assert pjrt.to_numpy(on_first.call([there, np.array([1, 1])])[0]).tolist() == [2**40 + 1, 4]

TEXT = '''module @m { func.func public @main(
   %x: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
  %r = "stablehlo.all_reduce"(%s) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32> }) {replica_groups = dense<[[0,1,2,3]]> : tensor<1x4xi64>}
    : (tensor<3xf32>) -> tensor<3xf32>
  %t = stablehlo.add %r, %w : tensor<3xf32>
  %y = stablehlo.add %x, %x : tensor<2x3xf32>
  return %y, %t : tensor<2x3xf32>, tensor<3xf32> } }'''
rows = pjrt.mesh_sharding({"d": 4}, ("d", None), devices)
full = pjrt.mesh_sharding({"d": 4}, (None,), devices)
place = Placement(tuple(devices), (rows, full), (rows, full), replicas=4)
x, w = np.arange(24, dtype=np.float32).reshape(8, 3), np.ones(3, np.float32)
for cached in (False, True):
    program = Executable(TEXT, [f32[8, 3], f32[3]], [f32[8, 3], f32[3]], [0], placement=place)
    assert program.from_cache is cached
    split = pjrt.put(x, sharding=rows)
    y, t = program.call([split, w])
    assert split.is_deleted()
    np.testing.assert_array_equal(pjrt.to_numpy(y), 2 * x)
    np.testing.assert_array_equal(pjrt.to_numpy(t), x.sum(0) + 1)
# a mesh with the devices in another order, one device only, and unsplit: brought to their places
reverse = pjrt.mesh_sharding({"d": 4}, ("d", None), devices[::-1])
for wrong in (pjrt.put(x, sharding=reverse), pjrt.put(x, devices[2]), x):
    y, t = program.call([wrong, w])
    np.testing.assert_array_equal(pjrt.to_numpy(y), 2 * x)
try:
    program.call([pjrt.put(np.zeros((16, 3), np.float32), sharding=rows), w])
except UserError as error:
    print(error.code)
"""


def test_programs_over_four_devices(cache_folder):
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "TREADLE_CACHE_DIR": str(cache_folder)}
    assert python(FOUR_DEVICES, TREADLE_PLATFORM="cpu", **environment) == "E0401"


def test_64_bit_types_stay_in_programs():
    big = np.array([2.0**60 + 2.0**10])  # more digits than f32 has
    assert pjrt.to_numpy(add(f64[1]).call([big, big])[0])[0] == 2 * big[0]


def test_arrays_with_parts_in_other_processes_are_refused():
    class Elsewhere:
        is_fully_addressable = False

    with pytest.raises(UserError) as caught:
        pjrt.move(Elsewhere(), pjrt.single(pjrt.default_device()))
    assert caught.value.code == "E0404"
