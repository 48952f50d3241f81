#!/usr/bin/env bash
# A campaign that goes on where it was left: hub/fuzz/campaign.sh MINUTES [TARGET...] has each target run until it has had so
# many minutes of CPU in all, two minutes at a time and one target after another, at the lowest priority. It may be ended at any
# time and begun again by the same command.
#
#   seeds/TARGET/, seeds/TARGET.tar.gz ─► corpus/TARGET ─► libFuzzer ─► minimised ─► seeds/TARGET.tar.gz
#                                                             └► campaign.tsv: a row per target
#
# Minutes are of CPU, not by the clock: a machine that is busy with something else makes it longer, not less. Coverage is
# libFuzzer's count of edges (`cov`) when the target had had 0, 1, 5 and 10 minutes, and at the end; a build of other code has
# others. FUZZ_JOBS=N runs so many targets at a time; FUZZ_SLICE=N gives turns of so many seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. fuzz/targets.sh
minutes=${1:?how many minutes of CPU each target is to have had in all}
shift
if [ $# -gt 0 ]; then targets=("$@"); fi
jobs=${FUZZ_JOBS:-1}
slice=${FUZZ_SLICE:-120}
ledger=fuzz/campaign.tsv
# The most that is kept of a target, in bytes.
most=100000
header=$'target\tCPU minutes\texecutions\tcov 0\tcov 1\tcov 5\tcov 10\tcov end\tinputs\tbytes\tlast\tfindings'
ticks=$(getconf CLK_TCK)
# By the clock, which at this priority says little.
export FUZZ_TIMEOUT=${FUZZ_TIMEOUT:-120}

[ -e "$ledger" ] || printf '%s\n' "$header" >"$ledger"
cp ../Cargo.lock fuzz/
nice -n 19 cargo fuzz build --dev --sanitizer none
host=$(rustc -vV | sed -n 's/^host: //p')
built="fuzz/target/$host/debug"

# A field of a target's row; nothing where there is none.
field() { awk -F'\t' -v name="$1" -v at="$2" '$1 == name { print $at }' "$ledger"; }

# Seconds of CPU that a process has had.
spent() { awk -v ticks="$ticks" '{ sub(/^.*\) /, ""); print int(($12 + $13) / ticks) }' "/proc/$1/stat" 2>/dev/null || echo "$2"; }

# Writes a target's row: seconds and executions of this turn, coverage at its marks, what is kept.
record() {
    local target=$1
    shift
    (
        flock 9
        awk -F'\t' -v OFS='\t' -v target="$target" -v seconds="$1" -v runs="$2" -v first="$3" -v one="$4" -v five="$5" \
            -v ten="$6" -v last="$7" -v inputs="$8" -v bytes="$9" -v day="$(date +%F)" -v found="${10}" '
            function put() {
                $2 = sprintf("%.1f", $2 + seconds / 60); $3 += runs
                if ($4 == "") $4 = first
                if (one != "") $5 = one
                if (five != "") $6 = five
                if (ten != "") $7 = ten
                if (last != "") $8 = last
                $9 = inputs; $10 = bytes; $11 = day; $12 += found
                print
            }
            $1 == target { seen = 1; put(); next }
            { print }
            END { if (!seen) { $0 = ""; $1 = target; $12 = ""; put() } }' "$ledger" >"$ledger.new"
        mv "$ledger.new" "$ledger"
    ) 9>"fuzz/corpus/ledger.lock"
}

# Keeps what is needed for all that was reached, the smallest first.
keep() {
    local target=$1 from="fuzz/corpus/$1" to="fuzz/corpus/$1.least" archive="fuzz/seeds/$1.tar.gz" counters=1
    while :; do
        rm -rf "$to"
        mkdir -p "$to"
        # shellcheck disable=SC2046
        nice -n 19 "$built/$target" -set_cover_merge=1 -use_counters=$counters $(arguments "$target") "$to" "$from" \
            >"fuzz/corpus/$target.merge.log" 2>&1 || return 0
        # By numbers: digests as names would be most of what is kept.
        local size name number=0
        while read -r size name; do
            number=$((number + 1))
            mv "$to/$name" "$to/$(printf '%05d' $number)"
        done < <(find "$to" -type f -printf '%s %f\n' | sort -k1n -k2)
        find "$to" -type f -printf '%f\0' | sort -z |
            tar -C "$to" --null -T - --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -cf - | gzip -9n >"$archive.new"
        # What would be too much is kept without how often a way was gone.
        [ "$(stat -c %s "$archive.new")" -gt $most ] && [ $counters = 1 ] || break
        counters=0
    done
    mv "$archive.new" "$archive"
    rm -rf "$from"
    mv "$to" "$from"
}

# One turn of a target, of at most so many seconds.
turn() {
    local target=$1 seconds=$2 corpus="fuzz/corpus/$1" log="fuzz/corpus/$1.log" had pid cpu=0 before one="" five="" ten="" found=0
    [ -d "$corpus" ] || unpack "$target" "$corpus"
    mkdir -p "fuzz/artifacts/$target"
    had=$(field "$target" 2 | awk '{ print int($1 * 60) }')
    had=${had:-0}
    # shellcheck disable=SC2046
    nice -n 19 "$built/$target" -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 $(arguments "$target") "$corpus" \
        >"$log" 2>&1 &
    pid=$!
    trap 'kill -TERM $pid 2>/dev/null || true' EXIT
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        before=$cpu
        cpu=$(spent "$pid" "$cpu")
        covered=$(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2 || true)
        for mark in 60 300 600; do
            if [ $((had + before)) -lt $mark ] && [ $((had + cpu)) -ge $mark ]; then
                case $mark in 60) one=$covered ;; 300) five=$covered ;; 600) ten=$covered ;; esac
            fi
        done
        [ "$cpu" -lt "$seconds" ] || kill -TERM "$pid" 2>/dev/null || true
    done
    trap - EXIT
    local code=0
    wait "$pid" || code=$?
    # It ends by 72 where it was told to.
    [ $code = 0 ] || [ $code = 72 ] || found=1
    if [ $found = 1 ]; then
        printf '%s: broken, see hub/fuzz/%s and hub/fuzz/artifacts\n' "$target" "${log#fuzz/}"
    fi
    local first last runs
    first=$(grep INITED "$log" | grep -oE 'cov: [0-9]+' | cut -d' ' -f2 || true)
    last=$(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2 || true)
    runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    keep "$target"
    record "$target" "$cpu" "${runs:-0}" "$first" "$one" "$five" "$ten" "$last" \
        "$(find "$corpus" -type f | wc -l)" "$(stat -c %s "fuzz/seeds/$target.tar.gz" 2>/dev/null || echo 0)" "$found"
    printf '%-20s %4s s, cov %s -> %s, %s inputs/s\n' "$target" "$cpu" "$first" "$last" "$((${runs:-0} / (cpu + 1)))"
    return $found
}

# A target that breaks waits for whoever mends it.
broken=" "
mkdir -p fuzz/corpus
while :; do
    went_on=0
    declare -A running=()
    for target in "${targets[@]}"; do
        case $broken in *" $target "*) continue ;; esac
        left=$(awk -v want="$minutes" -v had="$(field "$target" 2)" 'BEGIN { print int(want * 60 - had * 60) }')
        [ "$left" -gt 5 ] || continue
        went_on=1
        while [ ${#running[@]} -ge "$jobs" ]; do
            wait -n -p ended "${!running[@]}" || broken+="${running[$ended]} "
            unset "running[$ended]"
        done
        turn "$target" $((left < slice ? left : slice)) &
        running[$!]=$target
    done
    while [ ${#running[@]} -gt 0 ]; do
        wait -n -p ended "${!running[@]}" || broken+="${running[$ended]} "
        unset "running[$ended]"
    done
    [ $went_on = 1 ] || break
done
[ "$broken" = " " ] || { printf 'broken:%s\n' "$broken"; exit 1; }
