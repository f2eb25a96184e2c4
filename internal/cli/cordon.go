// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/words"
)

const cordonLong = `Keep new tasks off a GPU, for example before it is taken out of service. Tasks
that run on it keep running. The device plugin of the GPU's node reports its units as
unhealthy within one poll_interval, and "status" shows the GPU with the reason.

With --release the device plugin also closes its NVML session, which keeps all GPUs
of the node open, so that the GPU can be reset or its MIG mode changed. Until
"uncordon", or "cordon" without --release, the device plugin reads no GPU of the node:
"status" shows the other GPUs as they were last read, and their faults go unnoticed.

A GPU is named by its UUID or the start of one, as "status" prints it.`

const uncordonLong = `Let new tasks on a GPU that was cordoned.

A GPU is named by its UUID or the start of one, as "status" prints it.`

func (a App) newCordon(table *tableFlags) *cobra.Command {
	var reason string
	var release bool
	cmd := &cobra.Command{
		Use:   "cordon GPU",
		Short: "Keep new tasks off a GPU",
		Long:  cordonLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args:  oneGPU,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, gpu, err := a.openGPU(cmd.Context(), table, args[0])
			if err != nil {
				return err
			}
			defer t.Close()
			write := t.Cordon
			if release {
				write = t.CordonForReset
			}
			if err := write(cmd.Context(), gpu.ID, reason); err != nil {
				return table.explainChange(err)
			}
			sayCordoned(cmd.OutOrStdout(), gpu)
			if release {
				sayReleased(cmd.OutOrStdout(), gpu)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&release, "release", false, "close the device plugin's NVML session, so that the GPU can be reset")
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a few `words`; status shows it")
	return cmd
}

func (a App) newUncordon(table *tableFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon GPU",
		Short: "Let new tasks on a GPU again",
		Long:  uncordonLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args:  oneGPU,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, gpu, err := a.openGPU(cmd.Context(), table, args[0])
			if err != nil {
				return err
			}
			defer t.Close()
			if err := t.Uncordon(cmd.Context(), gpu.ID); err != nil {
				return table.explainChange(err)
			}
			if gpu.Cordon == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "GPU %s was not cordoned\n", gpu.ID)
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "GPU %s takes new tasks again\n", gpu.ID)
			}
			return nil
		},
	}
}

func sayCordoned(out io.Writer, gpu allocator.GPU) {
	what := "nothing runs on it"
	if running := len(gpu.Claims()); running > 0 {
		what = words.Count(running, "claim") + " on it until they end"
	}
	fmt.Fprintf(out, "GPU %s takes no new task once Nomad knows, within about 10 s; %s\n", gpu.ID, what)
}

func sayReleased(out io.Writer, gpu allocator.GPU) {
	fmt.Fprintf(out, "The device plugin of node %s closes its NVML session within a poll_interval; `nomad-gpu-mem status` says\n"+
		"\"the GPU can be reset now\". Programs on the GPU keep it open too: stop its tasks first. After it: uncordon\n",
		gpu.State.Node)
}

// oneGPU requires the name of one GPU.
func oneGPU(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s takes one GPU, got %q\nRun '%s --help' for how to name one", cmd.CommandPath(), args, cmd.CommandPath())}
}
