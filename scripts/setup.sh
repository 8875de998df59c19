# Sourced by demo and test: installs what is missing and leaves $PYTHON pointing at an environment with torch.
#
#   STALLOC_PYTHON  the interpreter to start from (default: python3)
#   STALLOC_VENV    where the environment goes (default: .venv in the repository)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
base_python=${STALLOC_PYTHON:-python3}
venv=${STALLOC_VENV:-$root/.venv}
# What one checkout compiled is found again from another.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
# Torch's modules are compiled at their first import, not at each.
unset PYTHONDONTWRITEBYTECODE
# The newest release of every minor version that the adapter is built and tested for, oldest first.
supported_torches='2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0'
torch_requirement="torch==${supported_torches##* }"  # where the interpreter has none

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Installs the Debian/Ubuntu packages among "$@" that are missing.
ensure_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || return 0
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null \
    || die "apt-get could not install: ${missing[*]}"
}

# The newest clang of the system's packages, from 16 on (C++20), in $clang and $clangxx; else the compiler that is there.
ensure_clang() {
  local version
  clang=${CC:-cc} clangxx=${CXX:-c++}
  for version in 19 18 17 16; do
    command -v "clang++-$version" >/dev/null || apt-cache show "clang-$version" >/dev/null 2>&1 || continue
    ensure_packages "clang-$version" "libclang-rt-$version-dev" "clang-tidy-$version"
    clang=clang-$version clangxx=clang++-$version
    return
  done
  say "no clang from 16 on: $clangxx compiles for the sanitizers, too"
}

# For the tests of the report's page.
ensure_browser() {
  command -v chromium >/dev/null || command -v google-chrome >/dev/null && return
  apt-cache show chromium >/dev/null 2>&1 || { say "no chromium in the system's packages: tests of pages are skipped"; return; }
  ensure_packages chromium
}

ensure_build_packages() {
  ensure_packages build-essential cmake ninja-build ccache libabsl-dev libprotobuf-dev protobuf-compiler libprotozero-dev \
    libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev
  [ "$base_python" != python3 ] || command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null \
    || ensure_packages python3 python3-venv python3-dev
}

# The package that has the module $1.
package_of() {
  case $1 in
    xdist | pytest_timeout) echo "pytest-${1#pytest_}" ;;
    yaml) echo pyyaml ;;
    material) echo mkdocs-material ;;
    codespell_lib) echo 'codespell[toml]' ;;
    *) echo "${1//_/-}" ;;
  esac
}

# With uv, which unpacks torch's gigabytes in half of pip's work; where uv cannot be had or does not reach them, with pip.
install_packages() {  # install_packages REQUIREMENT...
  "$PYTHON" -m uv --version >/dev/null 2>&1 || "$PYTHON" -m pip install -q uv >/dev/null 2>&1 || true
  "$PYTHON" -m uv pip install -q --python "$PYTHON" "$@" 2>/dev/null || "$PYTHON" -m pip install -q --no-compile "$@"
}

# What a virtual environment has is seen in another one, which --system-site-packages does not do.
share_packages() {  # share_packages FROM INTO: interpreters
  "$1" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' || return 0
  "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$2" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
}

# An environment of its own; a torch that the base interpreter has already is used as it is.
ensure_python() {
  local site=()
  if "$base_python" -c 'import torch' 2>/dev/null; then site=(--system-site-packages); fi
  [ -x "$venv/bin/python" ] || { say "creating $venv"; "$base_python" -m venv "${site[@]}" "$venv"; }
  PYTHON=$venv/bin/python
  [ ${#site[@]} = 0 ] || share_packages "$base_python" "$PYTHON"
  "$PYTHON" -c 'import torch' 2>/dev/null || {
    say "$base_python has no torch: installing $torch_requirement, which downloads some GB of CUDA's libraries with it"
    install_packages "$torch_requirement"
  }
  local missing=() name
  for name in numpy rich plotly pytest scikit_build_core "$@"; do
    "$PYTHON" -c "import $name" 2>/dev/null || missing+=("$(package_of "$name")")
  done
  [ ${#missing[@]} -eq 0 ] || { say "installing ${missing[*]}"; install_packages "${missing[@]}"; }
  export PYTHON
}

# The package, its libraries and the planner, into the environment.
install_stalloc() {  # install_stalloc [PIP'S OPTIONS...]
  say "building and installing stalloc"
  "$PYTHON" -m pip install -q --no-build-isolation --no-deps --force-reinstall "$@" "$root"
}
