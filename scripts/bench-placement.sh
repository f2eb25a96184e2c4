#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Measures placement on the public openb trace and prints a table: mean
# and standard deviation over the seeds, beside the expected value.
#
#   GPU_MEM_TRACE  directory of the trace (required)
#   GPU_MEM_BENCH  directory for results; default bin/bench-placement
#   GPU_MEM_SHORT  if set: two seeds instead of ten, and one for Nomad's scheduler,
#                  only steered; takes some minutes
#
# The full run takes an hour or more, most of it in Nomad's scheduler. Unsteered,
# that examines every node for each task that fits nowhere, so it has one seed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

[[ -n ${GPU_MEM_TRACE:-} ]] || die "GPU_MEM_TRACE must name the directory of the openb trace (docs/placement.md says where to get it)"
results=${GPU_MEM_BENCH:-bin/bench-placement}
seeds=42-51 samples=42-61 steered_seeds=42-51 stock_seeds=42
if [[ -n ${GPU_MEM_SHORT:-} ]]; then seeds=42-43 samples=42-44 steered_seeds=42 stock_seeds=; fi
compared=least-waste,most-use,best-fit,pack,fgd
mkdir -p "$results"

# play NAME FLAG...: writes every run's figures to NAME.csv.
play() { bin/nomad-gpu-mem simulate --csv "$results/$1.csv" "${@:2}" >"$results/$1.txt"; }

# policies NAME FLAG...: our policy and the best published one, each with a given
# and with a learned demand.
policies() { play "$1" --policy least-waste,fgd --demand both --seeds "$seeds" "${@:2}"; }

# row TEST NAME FIGURE AT_LEAST STRETCH: the figure of each scheduler.
row() {
  awk -F, -v test="$1" -v figure="$3" -v goals="$4 / $5" '
    $4 == figure { if (!($1 in n)) order[++count] = $1; n[$1]++; sum[$1] += $6; square[$1] += $6 * $6 }
    END {
      printf "%-40s %-13s", test, goals
      for (i = 1; i <= count; i++) {
        s = order[i]; mean = sum[s] / n[s]
        spread = n[s] > 1 ? sqrt((square[s] > n[s] * mean * mean ? square[s] - n[s] * mean * mean : 0) / (n[s] - 1)) : 0
        printf "  %6.2f ± %.2f ", mean, spread
      }
      print ""
    }' "$results/$2.csv"
}

policies default --plot "$results/default.svg"
policies gpushare100 --list gpushare100
policies gpuspec33 --list gpuspec33
policies departures-1.0 --departures 1.0
policies departures-1.1 --departures 1.1
play loads --policy "$compared" --departures 0.7,0.8,0.9,0.95,1.0,1.1 --seeds "$seeds" --plot "$results/loads.svg"
shapes=4x4,8x4,16x4,32x4,4x8,8x8,16x8,32x8
play small --policy "$compared" --sample "$shapes" --departures 0.7,0.8,0.9,1.1 --seeds "$samples"
play small-inflation --policy "$compared" --demand both --sample "$shapes" --seeds "$samples"
unseen=(gpushare40 gpushare60 gpushare80 multigpu50) # no weight was chosen by these
for list in "${unseen[@]}"; do policies "$list" --list "$list"; done

printf '%-40s %-13s  %-15s %-15s %-15s %s\n' '% of all GPU capacity in use' 'goal/stretch' 'ours' 'ours, learning' 'fgd' 'fgd, learning'
row 'default, arrivals of 130 %' default 'at 130 %' 95.9 96.2
row 'gpushare100, arrivals of 130 %' gpushare100 'at 130 %' 88.4 -
row 'gpuspec33, arrivals of 100 %' gpuspec33 'at 100 %' 93.5 -
row 'gpuspec33, arrivals of 130 %' gpuspec33 'at 130 %' 95.5 95.7
row 'with departures, load 1.0' departures-1.0 'in use' 94.7 -
row 'with departures, load 1.1' departures-1.1 'in use' 95.25 -
for list in "${unseen[@]}"; do row "$list, arrivals of 130 %" "$list" 'at 130 %' - -; done

play steered --scheduler nomad --pin shortlist --seeds "$steered_seeds"
printf '\n%-40s %-13s  %s\n' "through Nomad's scheduler" 'goal/stretch' reached
row 'default, 130 %, steered' steered 'at 130 %' ours-0.3 ours
if [[ -n $stock_seeds ]]; then
  play stock --scheduler nomad --pin none --seeds "$stock_seeds"
  row 'default, 130 %, as it is' stock 'at 130 %' - -
fi

printf '\n%-55s %10s %10s %10s\n' 'a decision' 'p50' 'at most' 'B per GPU'
go test -run '^$' -bench '^BenchmarkChoose/least-waste' -benchtime 20000x ./allocator/placement |
  awk '/^BenchmarkChoose/ {
    for (i = 3; i < NF; i += 2) value[$(i + 1)] = $i
    large = /100000/
    printf "%-55s %7.0f us %7.0f us %10.0f\n", large ? "12,500 nodes, 100,000 GPUs" : "1,213 nodes, 6,212 GPUs",
      value["p50-ns"] / 1000, large ? 2000 : 50, value["B/GPU"]
  }'

printf '\nWith departures, the whole cluster; differences are paired by seed\n'
cat "$results/loads.txt"
printf '\nSmall clusters, with departures\n'
sed -n '/^difference/,$p' "$results/small.txt"
printf '\nSmall clusters, arrivals of 130 %%: the first day\n'
sed -n '/^difference/,$p' "$results/small-inflation.txt"
say
say "curves: $results/default.svg, $results/loads.svg; every run: $results/*.csv"
