// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Command fakenvml compiles the fake NVML into the folder of its argument.
package main

import (
	"fmt"
	"os"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fakenvml FOLDER")
		os.Exit(2)
	}
	library, err := fakenvml.Build(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Println(library)
}
