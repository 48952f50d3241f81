#!/usr/bin/env bash
# A hub, member clusters and their agents on this machine, and the nginx example placed on them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
state=${QUICKSTART_DIR:-$root/.quickstart}

usage() {
    cat <<EOF
usage: scripts/quickstart.sh [up] [--members N] [--member NAME=KUBECONFIG]...
       scripts/quickstart.sh status | stop NAME | start NAME | down

  up        build in release, start a hub, member clusters and agents under .quickstart/, apply
            manifests/examples/nginx and show what came of it. Running it again starts what is not running.
  --members N               how many stand-in members to start (default 2)
  --member NAME=KUBECONFIG  use this real cluster as a member instead; may be given more than once
  status    what runs, and where its log is
  stop NAME, start NAME     stop or start one process (hub, member1, member1-agent, ...): the failure story
  down      stop everything and remove .quickstart/
EOF
}

fail() { echo "quickstart: $*" >&2; exit 1; }
bad() { echo "quickstart: $*" >&2; usage >&2; exit 2; }
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# --- processes: .quickstart/run/NAME.{cmd,pid}, .quickstart/log/NAME.log ---------------------------------------

pid_of() { cat "$state/run/$1.pid" 2>/dev/null || true; }
alive() {
    local pid; pid=$(pid_of "$1")
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null
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
    for _ in $(seq 120); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
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

hub() { "$state/bin/karmada-hub" "$@"; }
get() { hub get "$@" --kubeconfig "$state/hub/admin.kubeconfig"; }
cluster_ready() { get cluster "$1" | grep -Eq "^$1 +[^ ]+ +Pull +True "; }

# --- commands ---------------------------------------------------------------------------------------------------

up() {
    local members=2
    local -a real=()
    while [ $# -gt 0 ]; do
        case "$1" in
            --members) members=${2:-}; shift 2 || bad "--members wants a number" ;;
            --members=*) members=${1#*=}; shift ;;
            --member) real+=("${2:-}"); shift 2 || bad "--member wants NAME=KUBECONFIG" ;;
            --member=*) real+=("${1#*=}"); shift ;;
            *) bad "unknown argument $1" ;;
        esac
    done
    [[ $members =~ ^[1-9][0-9]?$ ]] || bad "--members wants a number from 1 to 99, not \"$members\""
    local pair
    for pair in "${real[@]}"; do
        [[ $pair == *=* && -r ${pair#*=} ]] || bad "--member wants NAME=KUBECONFIG with a readable file, not \"$pair\""
    done
    command -v cargo >/dev/null || fail "cargo is not installed; see https://rustup.rs"
    for tool in cc make; do
        command -v "$tool" >/dev/null || fail "$tool is not installed; on Debian and Ubuntu: apt-get install build-essential"
    done

    say "Building (the first time takes a few minutes)"
    local target
    cargo build --release --locked -p karmada-hub -p karmada-agent -p karmada-tests --bin karmada-hub --bin karmada-agent --bin kubesim
    target=${CARGO_TARGET_DIR:-$root/target}
    mkdir -p "$state"/{bin,run,log}
    # Copies, so that a later build does not replace what runs.
    local binary
    for binary in karmada-hub karmada-agent kubesim; do
        cp -f --remove-destination "$target/release/$binary" "$state/bin/$binary"
    done

    say "Starting the hub"
    define_hub
    launch hub
    await 30 "the hub" "$state/log/hub.log" get namespace default
    define_hub # again, now with the port that it found: a restart must come back on it

    local -a clusters=()
    local name config line
    if [ ${#real[@]} -gt 0 ]; then
        for pair in "${real[@]}"; do
            clusters+=("${pair%%=*}")
            mkdir -p "$state/${pair%%=*}"
            cp "${pair#*=}" "$state/${pair%%=*}/kubeconfig"
            chmod 600 "$state/${pair%%=*}/kubeconfig"
        done
    else
        for i in $(seq "$members"); do
            name=member$i
            clusters+=("$name")
            mkdir -p "$state/$name"
            config=$state/$name/kubeconfig
            define_member "$name"
            launch "$name"
        done
    fi

    say "Joining ${#clusters[@]} members: ${clusters[*]}"
    for name in "${clusters[@]}"; do
        config=$state/$name/kubeconfig
        await 30 "member $name" "$state/log/$name.log" test -s "$config"
        [ ${#real[@]} -gt 0 ] || define_member "$name"
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

    say "Applying manifests/examples/nginx"
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

One replica is asked for; the OverridePolicy makes it two on member2: three are ready.

Go on from here:
  export KUBECONFIG=$state/hub/admin.kubeconfig
  .quickstart/bin/karmada-hub get clusters                # or kubectl, if there is one
  scripts/quickstart.sh stop member1-agent                # the link goes down: member1 turns Unknown after 40 s,
  .quickstart/bin/karmada-hub get clusters                #   nothing on it is touched
  scripts/quickstart.sh start member1-agent
  scripts/quickstart.sh status
  scripts/quickstart.sh down
EOF
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
    up | down | status | stop | start) command=$1; shift ;;
    -h | --help | help) usage; exit 0 ;;
esac
case "$command" in
    up) up "$@" ;;
    status | down) [ $# -eq 0 ] || bad "$command takes no argument"; "$command" ;;
    stop) [ $# -eq 1 ] || bad "stop wants one NAME"; known "$1"; halt "$1"; echo "$1 stopped" ;;
    start) [ $# -eq 1 ] || bad "start wants one NAME"; known "$1"; launch "$1"; echo "$1 started" ;;
esac
