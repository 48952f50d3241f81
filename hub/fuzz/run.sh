#!/usr/bin/env bash
# Runs fuzz targets with coverage, for some seconds each: hub/fuzz/run.sh SECONDS [TARGET...]; without names all of them. They
# begin with what campaign.sh has kept.
# What breaks a property is kept under hub/fuzz/artifacts, what reaches new code under hub/fuzz/corpus or FUZZ_CORPUS.
# FUZZ_RUNS=N ends each after so many new inputs; FUZZ_SEED=N chooses the same ones from the same corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
. fuzz/targets.sh
seconds=${1:?how many seconds each target runs}
shift
if [ $# -gt 0 ]; then targets=("$@"); fi
# The same libraries as everywhere.
cp ../Cargo.lock fuzz/
corpus=${FUZZ_CORPUS:-fuzz/corpus}
failed=()
for target in "${targets[@]}"; do
    unpack "$target" "$corpus/$target"
    runs=${FUZZ_RUNS:--1}
    [ "$runs" = -1 ] || runs=$((runs + $(find "$corpus/$target" -type f | wc -l)))
    log="$corpus/$target.log"
    # shellcheck disable=SC2046
    if cargo fuzz run --dev --sanitizer none "$target" "$corpus/$target" -- \
        -max_total_time="$seconds" -runs="$runs" -seed="${FUZZ_SEED:-0}" $(arguments "$target") >"$log" 2>&1; then
        printf '%-20s %s\n' "$target" "$(grep -E '^Done ' "$log" | tail -1), $(grep -oE 'cov: [0-9]+' "$log" | tail -1)"
    else
        failed+=("$target")
        tail -60 "$log"
    fi
done
[ ${#failed[@]} = 0 ] || { printf 'broken: %s\n' "${failed[*]}"; exit 1; }
