# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Functions of ./dev that install Debian packages (scripts/packages.txt) and create .venv. They use
# its functions say, die and has.
venv=$PWD/.venv

# --- Debian packages ------------------------------------------------------------------------------

# Check for a Python >= 3.10 that can create a virtual environment and compile an extension.
usable_python() {
    "$1" - >/dev/null 2>&1 <<'PY'
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(0 if sys.version_info >= (3, 10) and os.path.exists(header) else 1)
PY
}

find_python() {
    for python in python3 /usr/bin/python3; do
        if usable_python "$python"; then return 0; fi
    done
    return 1
}

has_header() { # HEADER COMPILER...
    header=$1
    shift
    printf '#include <%s>\n' "$header" | "$@" -E - >/dev/null 2>&1
}

# present KIND NAME: see scripts/packages.txt.
present() {
    case $1 in
    program) has "$2" ;;
    library) PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "$2\.so" ;;
    header) has_header "$2" gcc ;;
    c++header) has_header "$2" g++ -x c++ ;;
    file) [ -f "$2" ] ;;
    python) find_python ;;
    esac
}

# probe GROUP...: set $missing to the missing packages of these groups of scripts/packages.txt.
probe() {
    missing=''
    while read -r group kind name packages; do
        case " $* " in *" $group "*) ;; *) continue ;; esac
        if present "$kind" "$name"; then continue; fi
        for package in $packages; do
            case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
        done
    done <scripts/packages.txt
}

install_missing() {
    if [ "$(id -u)" -ne 0 ] || ! has apt-get; then return 1; fi
    say "installing with apt-get (as root):$missing"
    mkdir -p build
    # Fetch the package lists only if the first attempt fails.
    # shellcheck disable=SC2086
    apt_install $missing || { apt-get update -qq </dev/null && apt_install $missing; } || {
        tail -n 5 build/apt.log
        return 1
    }
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        </dev/null >build/apt.log 2>&1
}

# need GROUP...: the command cannot run without these.
need() {
    probe "$@"
    [ -z "$missing" ] || install_missing ||
        die "missing; install and run again:  sudo apt-get install -y$missing"
    find_python || die "no python3 >= 3.10 with venv and headers was found"
}

# want GROUP...: the command can run without these, and prints that they are missing.
want() {
    probe "$@"
    [ -z "$missing" ] || install_missing ||
        say "continuing without:$missing  (sudo apt-get install -y$missing)"
}

# --- the Python environment -----------------------------------------------------------------------

# Print a checksum of the names, sizes and times of the files that the package is built from.
fingerprint() {
    find include src examples python cmake scripts CMakeLists.txt pyproject.toml README.md \
        -type f ! -name '*.pyc' -printf '%p %s %T@\n' | LC_ALL=C sort | cksum
}

# pip COMMAND ARGS...; pip_install does not compile: imports compile what they need.
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@" </dev/null; }
pip_install() { pip install --no-compile "$@"; }

built_wheel() { find build/wheel -name 'spanwise-*.whl' 2>/dev/null; }

# Build build/wheel/spanwise-*.whl. ./dev test reuses the objects of the release build.
wheel_options=''
build_wheel() {
    rm -rf build/wheel
    # shellcheck disable=SC2086
    pip wheel --no-build-isolation --no-deps --wheel-dir build/wheel $wheel_options .
}

# environment EXTRAS: install the package, built from the sources, and the extras' dependencies.
environment() {
    extras=$1 stamp=$venv/stamp-${1:-none} now=$(fingerprint)
    if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
        say "making .venv with $("$python" --version 2>&1)"
        rm -rf "$venv"
        "$python" -m venv "$venv" || return 1
    fi
    if [ "$(cat "$stamp" 2>/dev/null)" = "$now" ] && [ -n "$(built_wheel)" ]; then return 0; fi
    if [ "$(cat "$venv/stamp-package" 2>/dev/null)" != "$now" ] || [ -z "$(built_wheel)" ]; then
        say 'installing the package of the sources into .venv'
        requires=$(sed -n 's/^requires = \[\(.*\)\]$/\1/p' pyproject.toml | tr -d '",')
        # shellcheck disable=SC2086
        pip_install $requires && build_wheel || return 1
        pip_install --no-deps --force-reinstall "$(built_wheel)" || return 1
        echo "$now" >"$venv/stamp-package"
    fi
    pip_install "$(built_wheel)${extras:+[$extras]}" && echo "$now" >"$stamp"
}

must_have_environment() {
    environment "$1" || die 'could not install the package into .venv; the lines above say why'
}
