// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
)

// writerEnv makes this test's program a process that writes to the file which
// the variable names, until it is killed.
const writerEnv = "GPU_MEM_TEST_WRITER"

// writeForEver counts up two keys in one write and prints each number that is
// written for good.
func writeForEver(path string) {
	store := file.New(path)
	for {
		entry, err := store.Get(context.Background(), "one")
		if err == nil {
			n, _ := strconv.Atoi(string(entry.Value))
			err = store.Apply(context.Background(), twice(n+1, entry.Version))
			fmt.Println(n + 1)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func twice(n int, version uint64) []allocator.Write {
	value := []byte(strconv.Itoa(n))
	padding := []byte(`"` + strings.Repeat("-", 64<<10) + `"`) // so that a write takes a while
	return []allocator.Write{
		{Key: "one", Value: value, Version: version},
		{Key: "other", Value: value, Version: version},
		{Key: "padding", Value: padding, Version: version},
	}
}

// A process that is killed in the middle of writing loses no write that it was
// reported, leaves no half of one, and leaves the lock free.
func TestStore_survives_kill(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	path := newPath(t)
	store := file.New(path)
	defer store.Close()
	for round := range rounds {
		said := writeUntilKilled(t, path, time.Duration(20+round)*time.Millisecond)
		one, err := store.Get(t.Context(), "one")
		must.NoError(t, err)
		other, err := store.Get(t.Context(), "other")
		must.NoError(t, err)
		must.Eq(t, string(one.Value), string(other.Value))
		n, _ := strconv.Atoi(string(one.Value))
		must.GreaterEq(t, said, n)

		must.NoError(t, store.Apply(t.Context(), twice(n+1, one.Version)))
	}
}

// writeUntilKilled returns the last number that the process said it had written.
func writeUntilKilled(t *testing.T, path string, life time.Duration) int {
	t.Helper()
	var out, problems bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), life)
	defer cancel()
	writer := exec.CommandContext(ctx, os.Args[0])
	writer.Env = append(os.Environ(), writerEnv+"="+path)
	writer.Stdout, writer.Stderr = &out, &problems
	must.Error(t, writer.Run()) // killed
	must.Eq(t, "", problems.String())
	numbers := strings.Split(out.String(), "\n") // the last one may be cut short
	if len(numbers) < 2 {
		return 0
	}
	n, err := strconv.Atoi(numbers[len(numbers)-2])
	must.NoError(t, err)
	return n
}
