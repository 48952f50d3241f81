#!/bin/sh
# Puts mistakes of others back into the code, one after another, and says by which seed the simulation finds each.
#
#   tests/mutations/run.sh [NAME]...     all of them, or those whose patches are named so
#
# Found when they were last put back:
#
#   5803-tasks-never-end                   seed 0     eviction tasks stay after everything is well
#   2364-lost-clusters-lose-their-works    seed 1     deleted on a cluster that was only out of reach
#   7455-empty-is-healthy                  seed 17    the old copy goes although there is no new one
#   5406-missing-work-is-deleted           seed 23    a hub made anew of an older copy does not know the Work
#   backwards-clock                        seed 38    an agent's clock is put back, and its Lease does not count
#
# Works on a copy of HEAD in a folder of its own. SEEDS (0..1000) is where it looks; CARGO_TARGET_DIR may name a target
# folder to build in, so that not everything is built again.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
scratch=$(mktemp -d)
git -C "$root" worktree add --quiet --detach "$scratch/copy" HEAD
trap 'git -C "$root" worktree remove --force "$scratch/copy"; rm -rf "$scratch"' EXIT
cd "$scratch/copy"
: "${CARGO_TARGET_DIR:=$scratch/target}"
export CARGO_TARGET_DIR

[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's|^\./||; s|\.patch$||')
missed=0
for name in "$@"; do
    git apply "$here/$name.patch"
    cargo build --quiet -p karmada-tests --example simulate
    if "$CARGO_TARGET_DIR/debug/examples/simulate" --seeds "${SEEDS:-0..1000}" >"$scratch/told" 2>&1; then
        echo "$name: not found"
        missed=1
    else
        grep -E '^seed [0-9]+: ' "$scratch/told" | grep -vE ': Outcome|: [0-9]+ members' | tail -1 | sed "s|^|$name: |"
    fi
    git checkout --quiet -- .
done
exit $missed
