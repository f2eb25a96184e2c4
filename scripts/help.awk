# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Prints the targets of a makefile with their "##" comments, under "##@" heads.
BEGIN { FS = ":.*## " }
/^##@ / { printf "\n%s\n", substr($0, 5) }
/^[a-z][a-z0-9-]*:.*## / { printf "  %-15s %s\n", $1, $2 }
