#!/bin/sh
# Puts mistakes of others back into the code, one after another, and says by which seed the simulation finds each.
#
#   tests/mutations/run.sh [NAME]...     all of them, or those whose patches are named so
#
# Found when they were last put back:
#
#   2364-lost-clusters-lose-their-works    seed 6     deleted on a cluster that was only out of reach
#   7455-empty-is-healthy                  seed 14    replicas go although nothing has taken over
#   5803-tasks-never-end                   seed 18    eviction tasks stay after everything is well
#   fenced-goes-at-once                    seed 19    its successor begins while the last Pod is ending
#   5406-missing-work-is-deleted           seed 23    a hub made anew of an older copy does not know the Work
#   older-hub-deletes                      seed 26    a hub made anew of an older copy is believed
#   backwards-clock                        seed 38    an agent's clock is put back, and its Lease does not count
#   late-answer-counts                     seed 93    what an apply answered hides what the watch brought since
#   absent-is-gone                         seed 154   a kind that is not served for a moment counts as gone
#   two-agents-act                         seed 213   an agent that was replaced goes on
#
# No seed has been recorded yet for 6433-no-list-is-no-slices and silent-is-gone.
#
# Works on a copy of HEAD in a folder of its own, so that nothing else is touched, and takes it away however it ends. A
# seed counts only if the code as it is passes it. SEEDS (0..1000) is where it looks; CARGO_TARGET_DIR may name a target
# folder to build in, so that not everything is built again. Ends with 1 when something was not found, with 2 when
# something else went wrong.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(git -C "$here" rev-parse --show-toplevel)
[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's|^\./||; s|\.patch$||')
for name in "$@"; do
    [ -f "$here/$name.patch" ] || { echo "there is no $name.patch in tests/mutations" >&2; exit 2; }
done

scratch=$(mktemp -d)
tidy() {
    git -C "$root" worktree remove --force "$scratch/copy" 2>/dev/null || true
    rm -rf "$scratch"
    git -C "$root" worktree prune
}
trap tidy EXIT
trap 'exit 2' HUP INT TERM
git -C "$root" worktree add --quiet --detach "$scratch/copy" HEAD
cd "$scratch/copy"
: "${CARGO_TARGET_DIR:=$scratch/target}"
export CARGO_TARGET_DIR

# Builds what is there now, as $1.
build() {
    cargo build --quiet -p karmada-tests --example simulate || { echo "$1 does not build" >&2; exit 2; }
    cp "$CARGO_TARGET_DIR/debug/examples/simulate" "$scratch/$1"
}

for name in "$@"; do
    git apply -p0 --check "$here/$name.patch" || { echo "$name.patch does not apply any more: mend it" >&2; exit 2; }
done
build as-it-is
missed=0
for name in "$@"; do
    git apply -p0 "$here/$name.patch"
    build "$name"
    git checkout --quiet -- .
    "$scratch/$name" --seeds "${SEEDS:-0..1000}" >"$scratch/told" 2>&1 && { echo "$name: not found"; missed=1; continue; }
    seed=$(sed -n 's/^again: .*--seed \([0-9]*\) .*/\1/p' "$scratch/told" | head -1)
    [ -n "$seed" ] || { cat "$scratch/told" >&2; exit 2; }
    what=$(grep "^seed $seed: " "$scratch/told" | grep -v "^seed $seed: [0-9]* members" | head -1)
    if "$scratch/as-it-is" --seed "$seed" >"$scratch/told" 2>&1; then
        echo "$name: $what"
    else
        cat "$scratch/told" >&2
        echo "$name: seed $seed fails without it, too" >&2
        exit 2
    fi
done
exit $missed
