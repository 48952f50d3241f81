#!/usr/bin/env bash
# Runs fuzz targets with coverage, for some seconds each: hub/fuzz/run.sh SECONDS [TARGET...]; without names all of them.
# What breaks a property is kept under hub/fuzz/artifacts, what reaches new code under hub/fuzz/corpus or FUZZ_CORPUS.
# FUZZ_RUNS=N ends each after so many inputs; FUZZ_SEED=N chooses the same ones from the same corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?how many seconds each target runs}
shift
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
# The same libraries as everywhere.
cp ../Cargo.lock fuzz/
corpus=${FUZZ_CORPUS:-fuzz/corpus}
failed=()
for target in "${targets[@]}"; do
    mkdir -p "$corpus/$target" "fuzz/seeds/$target"
    log="$corpus/$target.log"
    if cargo fuzz run --dev --sanitizer none "$target" "$corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -runs="${FUZZ_RUNS:--1}" -seed="${FUZZ_SEED:-0}" -max_len="${FUZZ_LENGTH:-600}" -timeout=10 -rss_limit_mb=1500 >"$log" 2>&1; then
        printf '%-16s %s\n' "$target" "$(grep -E '^Done ' "$log" | tail -1), $(grep -oE 'cov: [0-9]+' "$log" | tail -1)"
    else
        failed+=("$target")
        tail -60 "$log"
    fi
done
[ ${#failed[@]} = 0 ] || { printf 'broken: %s\n' "${failed[*]}"; exit 1; }
