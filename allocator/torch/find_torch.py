"""Prints where the torch of this interpreter lies, as `key=value` lines for CMake.

Does not import torch: that takes seconds, can fail on a build machine without its libraries, and would load what a
build does not need. Run it isolated (`python -I find_torch.py`), so that the overlay which pip puts on PYTHONPATH while
it builds a wheel does not hide the interpreter's own packages; `--user` adds the user's site-packages, which isolation
leaves out; `--package DIR` describes that torch instead. Prints nothing when there is no torch.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import site
import sys
import types


def load_interface() -> types.ModuleType:
    """Returns the package's module of torch's interface."""
    source = os.path.join(os.path.dirname(__file__), "..", "..", "patches", "stalloc", "core", "interface.py")
    spec = importlib.util.spec_from_file_location("_interface", source)
    assert spec is not None
    assert spec.loader is not None
    sys.dont_write_bytecode = True  # not into the source tree
    module = importlib.util.module_from_spec(spec)
    sys.modules["_interface"] = module
    spec.loader.exec_module(module)
    return module


INTERFACE = load_interface()


def find_package() -> str | None:
    """Returns torch's directory, or None."""
    if "--package" in sys.argv:
        return sys.argv[sys.argv.index("--package") + 1]
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


def read_version(package: str) -> dict[str, str]:
    """Returns torch's version and its CUDA version ('' for a build without) from version.py."""
    with open(os.path.join(package, "version.py"), encoding="utf-8") as file:
        text = file.read()
    version = re.search(r"^__version__\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    cuda = re.search(r"^cuda\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return {"version": version.group(1) if version else "", "cuda": cuda.group(1) if cuda else ""}


def uses_new_abi(library: str) -> bool:
    """Returns whether libc10 was built with libstdc++'s current string: its mangled names say so."""
    with open(library, "rb") as file:
        return b"St7__cxx1112basic_string" in file.read()


def minor_version(version: str) -> str:
    """Returns "2.11" of "2.11.0+cu130"."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def segment_format(version: str, cuda_library: str) -> int:
    """Returns which text this torch has for shared expandable segments, 0 where nobody looked (segment_format.h).

    The library shows it: where the text names its handles, there is an error for a receiver that cannot take them.
    """
    if not INTERFACE.supported(version) or not cuda_library:
        return 0
    with open(cuda_library, "rb") as file:
        return 3 if b"received FABRIC handle from producer" in file.read() else 2


def find_cuda_headers(package: str, cuda: str) -> str:
    """Returns the directory of the CUDA runtime headers that came with torch, or ''."""
    root = os.path.join(os.path.dirname(package), "nvidia")
    major = cuda.partition(".")[0]
    places = [f"{root}/cu{major}/include", f"{root}/cuda_runtime/include", *sorted(glob.glob(f"{root}/*/include"))]
    return next((place for place in places if os.path.exists(os.path.join(place, "cuda_runtime_api.h"))), "")


def find_compiler_headers(package: str, headers: str) -> str:
    """Returns a directory with CUDA's crt/host_defines.h, which the runtime's headers include but lack, or ''."""
    triton = os.path.join(os.path.dirname(package), "triton", "backends", "nvidia", "include")
    places = [place for place in (headers, triton) if place]
    return next((place for place in places if os.path.exists(os.path.join(place, "crt", "host_defines.h"))), "")


def find_cuda_runtime(headers: str) -> str:
    """Returns the CUDA runtime's library next to its headers, or ''."""
    return next(iter(sorted(glob.glob(os.path.join(os.path.dirname(headers), "lib", "libcudart.so.*")))), "")


def main() -> None:
    """Prints the lines."""
    if "--user" in sys.argv:
        sys.path.append(site.getusersitepackages())
    package = find_package()
    if package is None or not os.path.exists(os.path.join(package, "version.py")):
        return
    library = os.path.join(package, "lib", "libc10.so")
    headers = os.path.realpath(os.path.join(package, "include"))  # as compilers name it in messages
    if not os.path.exists(library) or not os.path.isdir(headers):
        return
    facts = read_version(package)
    cuda_library = os.path.join(package, "lib", "libc10_cuda.so")
    facts["include"] = headers
    facts["c10"] = library
    facts["cpu"] = os.path.join(package, "lib", "libtorch_cpu.so")
    facts["c10_cuda"] = cuda_library if facts["cuda"] and os.path.exists(cuda_library) else ""
    facts["cuda_include"] = find_cuda_headers(package, facts["cuda"]) if facts["c10_cuda"] else ""
    facts["cuda_compiler_include"] = find_compiler_headers(package, facts["cuda_include"])
    facts["interface"] = INTERFACE.fingerprint(headers) or ""
    facts["cudart"] = find_cuda_runtime(facts["cuda_include"])
    facts["minor_version"] = minor_version(facts["version"])
    facts["segment_format"] = str(segment_format(facts["version"], facts["c10_cuda"]))
    facts["supported"] = "1" if INTERFACE.supported(facts["version"]) else "0"
    facts["range"] = INTERFACE.SUPPORTED
    facts["new_abi"] = "1" if uses_new_abi(library) else "0"
    for key, value in facts.items():
        print(f"{key}={value}")


main()
