#!/usr/bin/env bash
# A hub, member clusters and their agents on this machine, and the nginx example placed on them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
state=${QUICKSTART_DIR:-$root/.quickstart}
# What is copied there is nothing to be taken from.
PATH=${PATH//"$state/bin:"/}

usage() {
    cat <<EOF
usage: scripts/quickstart.sh [up] [--members N] [--member NAME=KUBECONFIG]... [--programs DIR | --build]
       scripts/quickstart.sh member NAME | status | stop NAME | start NAME | down

  up        start a hub, member clusters and agents under .quickstart/, apply manifests/examples/nginx and show
            what came of it. Running it again starts what is not running.
  --members N               how many stand-in members to start (default 2)
  --member NAME=KUBECONFIG  use this real cluster as a member instead; may be given more than once
  --programs DIR            take karmada-hub, karmada-agent and kubesim from this folder
  --build                   build them here, whatever is installed
            Without either, programs on PATH are taken, or a release build in target/ that is up to date. Otherwise
            they are built: quickly (cargo's profile "quickstart"), and so not fast.
  member NAME               start one more stand-in cluster, without an agent, to try joining it
  status    what runs, and where its log is
  stop NAME, start NAME     stop or start one process (hub, member1, member1-agent, ...): the failure story
  down      stop everything and remove .quickstart/
EOF
}

fail() { echo "quickstart: $*" >&2; exit 1; }
bad() { echo "quickstart: $*" >&2; usage >&2; exit 2; }
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

# The steps of "up": which one begins, of how many, and how long it has been so far.
readonly steps=5
step=0
step() { step=$((step + 1)); say "$step/$steps  $*  ($SECONDS s so far)"; }

# --- processes: .quickstart/run/NAME.{cmd,pid}, .quickstart/log/NAME.log ---------------------------------------

pid_of() { cat "$state/run/$1.pid" 2>/dev/null || true; }
# Whether a process runs: neither one that has ended and that nobody has waited for, nor another one that has its number now.
alive() {
    local pid first
    pid=$(pid_of "$1")
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || return 1
    [[ $(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) != [ZX]* ]] || return 1
    # As it is before it has become the program, it has this script's words.
    first=$(head -n 1 "$state/run/$1.cmd")
    tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF -e "$first" -e "$(basename "$first")" -e "${BASH_SOURCE[0]}" -e setsid
}
launch() { # NAME: runs what .cmd says, one argument a line
    alive "$1" && return 0
    local -a command
    mapfile -t command <"$state/run/$1.cmd"
    setsid "${command[@]}" >>"$state/log/$1.log" 2>&1 </dev/null &
    echo $! >"$state/run/$1.pid"
}
define() { # NAME COMMAND...
    local name=$1; shift
    printf '%s\n' "$@" >"$state/run/$name.cmd"
}
halt() {
    local pid; pid=$(pid_of "$1")
    alive "$1" || { rm -f "$state/run/$1.pid"; return 0; }
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 120); do alive "$1" || break; sleep 0.1; done
    # Not what has its number by now.
    ! alive "$1" || kill -9 "$pid" 2>/dev/null || true
    rm -f "$state/run/$1.pid"
}
names() { for f in "$state"/run/*.cmd; do [ -e "$f" ] && basename "$f" .cmd; done; }
known() { [ -f "$state/run/$1.cmd" ] || fail "no process named $1; there are: $(names | tr '\n' ' ')"; }

await() { # SECONDS WHAT LOG COMMAND...: until the command succeeds
    local limit=$1 what=$2 log=$3; shift 3
    local end=$((SECONDS + limit))
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$end" ]; then
            echo "--- last lines of $log" >&2
            tail -n 15 "$log" >&2 2>/dev/null || true
            fail "$what: not within $limit s"
        fi
        sleep 0.2
    done
}

# Keeps a stand-in's or the hub's port over restarts: the first start picks a free one.
listen_of() { # KUBECONFIG
    local port
    port=$(sed -n 's/^ *"\{0,1\}server"\{0,1\}: *"\{0,1\}https:.*:\([0-9]*\)"\{0,1\},\{0,1\}$/\1/p' "$1" 2>/dev/null | head -n 1)
    echo "127.0.0.1:${port:-0}"
}

define_hub() {
    define hub "$state/bin/karmada-hub" serve --data-dir "$state/hub" \
        --listen "$(listen_of "$state/hub/admin.kubeconfig")" --advertise 127.0.0.1
}
define_member() { # NAME
    define "$1" "$state/bin/kubesim" --data-dir "$state/$1/data" \
        --listen "$(listen_of "$state/$1/kubeconfig")" --kubeconfig-out "$state/$1/kubeconfig"
}

# Waits until a process does its work. Whether it still runs then.
settle() { # NAME
    local log=$state/log/$1.log end=$((SECONDS + 30)) seen=0
    while [ "$SECONDS" -lt "$end" ]; do
        alive "$1" || return 1
        case "$1" in
            hub) ! get namespace default >/dev/null 2>&1 || return 0 ;;
            # Of the others it is enough that they do not end: an agent waits for its hub as long as it takes.
            *) seen=$((seen + 1)); [ "$seen" -le 5 ] || return 0 ;;
        esac
        sleep 0.2
    done
    fail "$1 runs, and does not answer within 30 s; its log is $log"
}
start() { # NAME
    local ran=''
    ! alive "$1" || ran=yes
    launch "$1"
    if ! settle "$1"; then
        # One that ran may have been about to end.
        if [ -z "$ran" ] || ! launch "$1" || ! settle "$1"; then
            tail -n 15 "$state/log/$1.log" >&2 2>/dev/null || true
            fail "$1 has ended; the last lines of its log, $state/log/$1.log, are above"
        fi
    fi
    echo "$1 started"
}

start_member() { # NAME
    mkdir -p "$state/$1"
    define_member "$1"
    launch "$1"
}
await_member() { # NAME
    await 30 "member $1" "$state/log/$1.log" test -s "$state/$1/kubeconfig"
    define_member "$1" # again, as the hub
}

hub() { "$state/bin/karmada-hub" "$@"; }
get() { hub get "$@" --kubeconfig "$state/hub/admin.kubeconfig"; }
cluster_ready() { get cluster "$1" | grep -Eq "^$1 +[^ ]+ +Pull +True "; }

# --- programs ---------------------------------------------------------------------------------------------------

# The stand-in member is not wanted where all members are real.
wanted() { if [ "$1" -gt 0 ]; then echo karmada-hub karmada-agent; else echo karmada-hub karmada-agent kubesim; fi; }
all_in() { # DIR NAME...
    local dir=$1 name; shift
    for name in "$@"; do [ -x "$dir/$name" ] || return 1; done
}
on_path() { local name; for name in "$@"; do command -v "$name" >/dev/null || return 1; done; }
# Whether no source is newer than a build.
up_to_date() { # DIR
    all_in "$1" "${programs[@]}" || return 1
    [ -z "$(find Cargo.toml Cargo.lock hub agent tests -path hub/docs -prune -o -type f -newer "$1/karmada-hub" -print -quit)" ]
}
# Copies, so that a later build does not replace what runs.
take() { # WHY FILE...
    local why=$1; shift
    mkdir -p "$state"/{bin,run,log}
    cp -f --remove-destination "$@" "$state/bin/"
    echo "  $("$state/bin/karmada-hub" --version), $why"
}
files() { # DIR: the programs in it, one a line
    local name
    for name in "${programs[@]}"; do echo "$1/$name"; done
}

fetch_programs() { # DIR or "", "yes" to build in any case
    local dir=$1 build=$2 target=${CARGO_TARGET_DIR:-$root/target}
    local -a found
    if [ -n "$dir" ]; then
        all_in "$dir" "${programs[@]}" || fail "--programs $dir: it must hold ${programs[*]}"
        mapfile -t found < <(files "$dir")
        take "from $dir" "${found[@]}"
    elif [ -z "$build" ] && on_path "${programs[@]}"; then
        mapfile -t found < <(for name in "${programs[@]}"; do command -v "$name"; done)
        take "from $(dirname "${found[0]}") (--build builds it here instead)" "${found[@]}"
    elif [ -z "$build" ] && up_to_date "$target/release"; then
        mapfile -t found < <(files "$target/release")
        take "from $target/release, which is up to date" "${found[@]}"
    else
        command -v cargo >/dev/null || fail "cargo is not installed; see https://rustup.rs, or name a folder with the programs: --programs DIR"
        local needs has
        needs=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
        has=$(rustc --version | cut -d ' ' -f 2)
        [ "$(printf '%s\n' "$needs" "${has%%-*}" | sort -V | head -n 1)" = "$needs" ] ||
            fail "Rust $needs or newer is needed, and this is $has: rustup update stable"
        for tool in cc make; do
            command -v "$tool" >/dev/null || fail "$tool is not installed; on Debian and Ubuntu: apt-get install build-essential"
        done
        echo "  building ${programs[*]}: a few minutes on two cores the first time, seconds after that"
        local -a how=(--profile quickstart --locked --no-default-features -p karmada-hub -p karmada-agent)
        local name
        for name in "${programs[@]}"; do how+=(--bin "$name"); done
        [[ " ${programs[*]} " != *" kubesim "* ]] || how+=(-p karmada-kubesim)
        # On a terminal cargo shows how many crates are built and how many are left; elsewhere nobody wants a line for each.
        [ -t 2 ] || how+=(--quiet)
        cargo build "${how[@]}"
        mapfile -t found < <(files "$target/quickstart")
        take "built here" "${found[@]}"
    fi
}

# --- commands ---------------------------------------------------------------------------------------------------

up() {
    local members=2 from='' build=''
    local -a real=()
    while [ $# -gt 0 ]; do
        case "$1" in
            --members) members=${2:-}; shift 2 || bad "--members wants a number" ;;
            --members=*) members=${1#*=}; shift ;;
            --member) real+=("${2:-}"); shift 2 || bad "--member wants NAME=KUBECONFIG" ;;
            --member=*) real+=("${1#*=}"); shift ;;
            --programs) from=${2:-}; shift 2 || bad "--programs wants a folder" ;;
            --programs=*) from=${1#*=}; shift ;;
            --build) build=yes; shift ;;
            *) bad "unknown argument $1" ;;
        esac
    done
    [[ $members =~ ^[1-9][0-9]?$ ]] || bad "--members wants a number from 1 to 99, not \"$members\""
    local pair
    for pair in "${real[@]}"; do
        [[ $pair == *=* && -r ${pair#*=} ]] || bad "--member wants NAME=KUBECONFIG with a readable file, not \"$pair\""
    done
    [ -z "$from" ] || [ -z "$build" ] || bad "--programs and --build do not go together"

    step "Programs"
    local -a programs
    read -r -a programs < <(wanted "${#real[@]}")
    fetch_programs "$from" "$build"

    step "Hub"
    define_hub
    launch hub
    await 30 "the hub" "$state/log/hub.log" get namespace default
    define_hub # again, now with the port that it found: a restart must come back on it
    echo "  it answers; its log is $state/log/hub.log"

    step "Member clusters"
    local -a clusters=()
    local name config line
    if [ ${#real[@]} -gt 0 ]; then
        for pair in "${real[@]}"; do
            clusters+=("${pair%%=*}")
            echo "  ${pair%%=*} by ${pair#*=}"
            mkdir -p "$state/${pair%%=*}"
            cp "${pair#*=}" "$state/${pair%%=*}/kubeconfig"
            chmod 600 "$state/${pair%%=*}/kubeconfig"
        done
    else
        for i in $(seq "$members"); do
            name=member$i
            clusters+=("$name")
            start_member "$name"
            echo "  $name is started, a stand-in that runs no containers"
        done
    fi

    step "Agents: ${clusters[*]} join"
    for name in "${clusters[@]}"; do
        config=$state/$name/kubeconfig
        [ ${#real[@]} -gt 0 ] || await_member "$name"
        # Once it has joined it needs no other token.
        if [ ! -s "$state/$name/agent/karmada-kubeconfig" ]; then
            line=$(hub token create --cluster "$name" --kubeconfig "$state/hub/admin.kubeconfig" 2>"$state/log/token.log" |
                sed -n 's/^karmada-agent //p')
            [ -n "$line" ] || fail "no token for $name: $(cat "$state/log/token.log")"
            # shellcheck disable=SC2086 # words
            define "$name-agent" "$state/bin/karmada-agent" $line --kubeconfig "$config" \
                --state-dir "$state/$name/agent" --health-probe-bind-address 0 --metrics-bind-address 0
        fi
        launch "$name-agent"
    done
    for name in "${clusters[@]}"; do
        await 60 "cluster $name to be Ready" "$state/log/$name-agent.log" cluster_ready "$name"
        echo "  $name is Ready"
    done

    step "Example: manifests/examples/nginx"
    hub apply -f manifests/examples/nginx --kubeconfig "$state/hub/admin.kubeconfig"
    if [ ${#real[@]} -eq 0 ] && [ "$members" -ge 2 ]; then
        await 60 "nginx to be READY 3/1" "$state/log/hub.log" sh -c \
            "'$state/bin/karmada-hub' get deployment nginx --kubeconfig '$state/hub/admin.kubeconfig' | grep -Eq '^nginx +3/1 '"
    fi

    say "Clusters";                            get clusters
    say "Where the hub placed the Deployment"; get resourcebindings
    say "What each member is told";            get works -A
    say "The template, with the status of all members summed up"; get deployment nginx
    cat <<EOF

The template asks for one replica, and the OverridePolicy makes it two on member2: together three are ready (3/1).

Go on from here, or follow hub/docs/tour.md:
  export KUBECONFIG=$state/hub/admin.kubeconfig PATH=$state/bin:\$PATH
  karmada-hub get clusters                                # kubectl works as well
  scripts/quickstart.sh stop member1-agent                # the link goes down: member1 turns Unknown after 40 s,
  karmada-hub get clusters                                #   and nothing on it is touched
  scripts/quickstart.sh start member1-agent
  scripts/quickstart.sh status
  scripts/quickstart.sh down
EOF
}

member() { # NAME
    [[ $1 =~ ^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$ ]] || bad "\"$1\" is no name for a cluster: lower-case letters, digits and dashes"
    [ -x "$state/bin/kubesim" ] || fail "there is no stand-in to start yet; first: scripts/quickstart.sh"
    start_member "$1"
    await_member "$1"
    echo "$1 runs; its kubeconfig is $state/$1/kubeconfig"
}

status() {
    [ -d "$state/run" ] || { echo "nothing runs; start with: scripts/quickstart.sh"; return; }
    local name
    printf '%-20s %-10s %s\n' NAME STATE LOG
    for name in $(names); do
        if alive "$name"; then printf '%-20s %-10s %s\n' "$name" "running" "$state/log/$name.log"
        else printf '%-20s %-10s %s\n' "$name" "stopped" "$state/log/$name.log"; fi
    done
}

down() {
    local name
    # Agents first, so that none reports the end of its member.
    for name in $(names | grep -- '-agent$' || true) $(names | grep -v -- '-agent$' || true); do halt "$name"; done
    rm -rf "$state"
    echo "stopped, and $state removed"
}

command=up
case "${1:-}" in
    up | down | status | stop | start | member) command=$1; shift ;;
    -h | --help | help) usage; exit 0 ;;
esac
case "$command" in
    up) up "$@" ;;
    status | down) [ $# -eq 0 ] || bad "$command takes no argument"; "$command" ;;
    member) [ $# -eq 1 ] || bad "member wants one NAME"; member "$1" ;;
    stop) [ $# -eq 1 ] || bad "stop wants one NAME"; known "$1"; halt "$1"; echo "$1 stopped" ;;
    start) [ $# -eq 1 ] || bad "start wants one NAME"; known "$1"; start "$1" ;;
esac
