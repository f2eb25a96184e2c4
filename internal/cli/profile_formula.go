// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/words"
)

func parseProfile(base string, per []string, least, most string) (allocator.Profile, error) {
	var p allocator.Profile
	var err error
	if p.BaseMiB, err = parseMiB(base); err != nil {
		return p, fmt.Errorf("--base: %w", err)
	}
	pairs, err := parsePairs(per)
	if err != nil {
		return p, fmt.Errorf("--per: %w", err)
	}
	for attribute, size := range pairs {
		mib, err := parseMiB(size)
		if err != nil {
			return p, fmt.Errorf("--per %s: %w", attribute, err)
		}
		if p.MiBPer == nil {
			p.MiBPer = map[string]float64{}
		}
		p.MiBPer[attribute] = mib
	}
	if p.MinMiB, err = parseBound(least); err != nil {
		return p, fmt.Errorf("--min: %w", err)
	}
	if p.MaxMiB, err = parseBound(most); err != nil {
		return p, fmt.Errorf("--max: %w", err)
	}
	return p, nil
}

// parsePairs reads arguments of the form name=value.
func parsePairs(args []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("invalid value %q, want name=value", arg)
		}
		if _, twice := pairs[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		pairs[name] = value
	}
	return pairs, nil
}

func writeProfiles(w io.Writer, profiles map[string]allocator.Profile) error {
	if len(profiles) == 0 {
		_, err := fmt.Fprintln(w, `No profiles. "nomad-gpu-mem profile set" makes one.`)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROFILE\tNEED\tABOUT")
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", words.Printable(name), formulaText(profiles[name]), words.Printable(profiles[name].About))
	}
	return table.Flush()
}

// formulaText renders a profile as a sum.
func formulaText(p allocator.Profile) string {
	text := fmt.Sprintf("%g MiB", p.BaseMiB)
	for _, attribute := range slices.Sorted(maps.Keys(p.MiBPer)) {
		text += fmt.Sprintf(" + %g × %s", p.MiBPer[attribute], words.Printable(attribute))
	}
	if p.MinMiB > 0 {
		text += fmt.Sprintf(", at least %d", p.MinMiB)
	}
	if p.MaxMiB > 0 {
		text += fmt.Sprintf(", at most %d", p.MaxMiB)
	}
	return text
}
