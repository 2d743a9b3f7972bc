# Shared by ./foretell and ./test, which set `name` (how messages begin) and `root` (the repository).
# Makes root/.venv and keeps it in step with pyproject.toml. Nothing here writes to standard output.

venv="$root/.venv"
setup_log="$root/.venv-setup.log"
setup_failed=3 # exit code of a machine that cannot run this; 0, 1 and 2 are answers of the program

fail() { # MESSAGE: one line, and the end
    printf '%s: %s\n' "$name" "$1" >&2
    exit "$setup_failed"
}

# What the environment depends on. The path is part of it, since an environment cannot be moved.
fingerprint() {
    printf '%s %s' "$(cksum <"$root/pyproject.toml")" "$root"
}

stamp_file() { # EXTRAS
    printf '%s/.stamp-%s' "$venv" "$1"
}

# EXTRAS: installed from this very pyproject.toml, here, with a Python that still exists. `all` has the rest.
is_ready() {
    local stamp="" file="$venv/.stamp-$1"
    if [[ $1 != all* ]] && is_ready all; then return; fi
    [[ -r $file && -x $venv/bin/python && -x $venv/bin/foretell && ! -e $venv/.unfinished ]] || return 1
    IFS= read -r stamp <"$file"
    [[ $stamp == "$(fingerprint)" ]]
}

# Sets `python` to the real path of the first interpreter that is new enough.
find_python() {
    local candidate major minor path seen=""
    for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        read -r major minor path < <("$candidate" -c 'import os, sys
print(sys.version_info[0], sys.version_info[1], os.path.realpath(sys.executable))' 2>/dev/null) || continue
        if ((major > 3 || (major == 3 && minor >= 11))); then
            python=$path
            return
        fi
        seen="$candidate is Python $major.$minor"
    done
    fail "needs Python 3.11 or newer on the PATH (python3.11 to python3.14, or python3); ${seen:-found none}"
}

discard_venv() { # the lock and the log stay
    rm -rf "$venv"
}

# Python takes the lock on the shell's own descriptor, where it outlives that Python: no flock(1) needed.
lock_setup() {
    { exec 9>"$root/.venv.lock"; } 2>/dev/null || fail "cannot write to $root, where .venv is to be made"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null && return
    echo "waiting for another set-up of $root/.venv to end" >&2
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || fail "cannot lock $root/.venv.lock"
}

unlock_setup() {
    exec 9>&-
}

# Whether the .venv that is there can be kept: finished by us and at home here, or somebody's working one.
is_usable() {
    local stamp file
    [[ -x $venv/bin/python && ! -e $venv/.unfinished ]] || return 1
    for file in "$venv"/.stamp-*; do
        [[ -r $file ]] || continue
        IFS= read -r stamp <"$file"
        [[ $stamp == *" $root" ]] || return 1
    done
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 &&
        "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

create_venv() {
    discard_venv
    if ! "$python" -m venv "$venv" >>"$setup_log" 2>&1 </dev/null; then
        discard_venv
        fail "$python could not make a virtual environment (on Debian: apt install python3-venv); see $setup_log"
    fi
    made_venv=1
}

run_pip() { # ARGUMENTS of pip install; in the log, not on the screen
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 "$venv/bin/python" -m pip install --no-input "$@" \
        >>"$setup_log" 2>&1 </dev/null
}

# How far pip is, from its log, every second on a terminal and every ten seconds elsewhere: packages that it
# found it needs, those that are here, and their size so far.
show_progress() {
    local line found here size seconds=0 what
    while sleep 1; do
        found=0 here=0 size=0 what=fetched
        while IFS= read -r line; do
            case $line in
            Collecting\ *) ((found += 1)) ;;
            *.metadata\ *) ;;
            *"Downloading "* | *"Using cached "*)
                ((here += 1))
                [[ $line =~ \(([0-9]+)(\.[0-9]+)?\ MB\) ]] && ((size += BASH_REMATCH[1]))
                ;;
            "Installing collected packages"*) what="fetched, being installed" ;;
            esac
        done <"$setup_log"
        ((seconds += 1))
        if ((here == 0)); then
            what="$found packages are needed so far"
        else
            what="$here of $found packages $what ($size MB)"
        fi
        if [[ -t 2 ]]; then
            printf '\r\033[K%s: %d s: %s' "$name" "$seconds" "$what" >&2
        elif ((seconds % 10 == 0)); then
            printf '%s: %d s: %s\n' "$name" "$seconds" "$what" >&2
        fi
    done
}

stop_progress() {
    [[ -n ${progress:-} ]] || return 0
    kill "$progress" 2>/dev/null
    wait "$progress" 2>/dev/null
    progress=""
    if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

# pip resolves and fetches before it changes anything, so an environment that was there is still whole.
install_failed() {
    local cause
    cause=$(sed -n 's/^ERROR: //p' "$setup_log" | tail -n 1)
    if ((made_venv)); then discard_venv; else rm -f "$venv/.unfinished"; fi
    fail "could not install the package${cause:+ ($cause)}; nothing was left half-made, details in $setup_log"
}

install_interrupted() {
    stop_progress
    discard_venv
    fail "set-up was interrupted and will start afresh next time"
}

size_of() { # EXTRAS: how much there is to install, in words
    case $1 in
    all,*) echo "some 1,100 MB: every verb and what checks them" ;;
    all) echo "some 800 MB: what every verb needs" ;;
    *) echo "some 150 MB: what this verb needs" ;;
    esac
}

install() { # EXTRAS; the lock is held
    local extras=$1 made_venv=0
    : >"$setup_log"
    trap install_interrupted INT TERM HUP
    if is_usable; then
        printf '%s: bringing %s up to date (%s)\n' "$name" "$venv" "$(size_of "$extras")" >&2
        is_ready all || rm -f "$venv"/.stamp-*
    else
        printf '%s: first use: setting up %s (%s)\n' "$name" "$venv" "$(size_of "$extras")" >&2
        create_venv
    fi
    : >"$venv/.unfinished" # others wait while it is there, and a set-up that was killed is started afresh
    show_progress &
    progress=$!
    if (cd "$root" && run_pip -e ".[$extras]"); then
        stop_progress
    else
        stop_progress
        install_failed
    fi
    # Also where the caller's Python is told to write no compiled files: each start would compile anew.
    "$venv/bin/python" -m compileall -q "$root/src" >>"$setup_log" 2>&1 </dev/null || true
    fingerprint >"$(stamp_file "$extras")"
    [[ $extras == all,* ]] && fingerprint >"$(stamp_file all)"
    rm -f "$venv/.unfinished" "$setup_log"
    trap - INT TERM HUP
}

# The one entry point: after it, .venv holds the package (editable) with the given extras.
ensure_venv() { # EXTRAS such as all or all,dev
    local extras=$1 python=""
    is_ready "$extras" && return
    find_python
    lock_setup
    is_ready "$extras" || install "$extras" # somebody else may have made it while we waited
    unlock_setup
}
