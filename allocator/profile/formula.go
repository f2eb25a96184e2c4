// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// Formula computes how much GPU memory a kind of task needs:
//
//	BaseMiB + Σ MiBPer[attribute] · attribute, rounded up to a MiB
type Formula struct {
	BaseMiB float64
	MiBPer  map[string]float64 // may be negative, as for a quantization that saves memory
	MinMiB  uint64             // less is raised to this
	MaxMiB  uint64             // more is an error; 0 is unlimited
}

// LargestMiB is more than any GPU will have for years: a larger result is a mistake.
const LargestMiB = 16 << 20 // 16 TiB

var (
	// ErrInvalid is returned when a formula is invalid for every task.
	ErrInvalid = errors.New("invalid profile")

	// ErrAttribute is returned when a task lacks an attribute that its profile
	// needs, or when the attribute is not a number.
	ErrAttribute = errors.New("attribute of the task")

	// ErrNeed is returned when the result is not a possible amount of memory.
	ErrNeed = errors.New("need of the task")
)

// attributeName matches names that may end a key of a job's meta block.
var attributeName = regexp.MustCompile(`^[a-z0-9][a-z0-9_]*$`)

// Validate returns an error that matches ErrInvalid if a formula is invalid.
func (f Formula) Validate() error {
	if f.BaseMiB == 0 && len(f.MiBPer) == 0 {
		return fmt.Errorf("%w: it has neither a base nor an attribute", ErrInvalid)
	}
	if bad(f.BaseMiB) || f.BaseMiB < 0 || f.BaseMiB > LargestMiB {
		return fmt.Errorf("%w: base of %g MiB, want 0 to %d", ErrInvalid, f.BaseMiB, LargestMiB)
	}
	for _, name := range slices.Sorted(maps.Keys(f.MiBPer)) {
		if !attributeName.MatchString(name) {
			return fmt.Errorf("%w: invalid attribute name %q, want lower-case letters, digits and _", ErrInvalid, name)
		}
		if per := f.MiBPer[name]; bad(per) || math.Abs(per) > LargestMiB {
			return fmt.Errorf("%w: %g MiB per %s; the amount must be below %d", ErrInvalid, per, name, LargestMiB)
		}
	}
	if f.MinMiB > LargestMiB || f.MaxMiB > LargestMiB {
		return fmt.Errorf("%w: bounds of %d and %d MiB, want at most %d", ErrInvalid, f.MinMiB, f.MaxMiB, LargestMiB)
	}
	if f.MaxMiB > 0 && f.MinMiB > f.MaxMiB {
		return fmt.Errorf("%w: the least, %d MiB, is above the most, %d MiB", ErrInvalid, f.MinMiB, f.MaxMiB)
	}
	return nil
}

// Need returns the memory of a task in MiB. It ignores attributes that the formula does not
// use. The error matches ErrAttribute, ErrNeed or ErrInvalid.
func (f Formula) Need(attributes map[string]string) (mib uint64, err error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	sum := f.BaseMiB
	for _, name := range slices.Sorted(maps.Keys(f.MiBPer)) { // sums of floats depend on the order
		value, err := attribute(attributes, name)
		if err != nil {
			return 0, err
		}
		sum += f.MiBPer[name] * value
	}
	if bad(sum) || sum > LargestMiB {
		return 0, fmt.Errorf("%w is %g MiB, which no GPU has; check the attributes and the profile", ErrNeed, sum)
	}
	if sum <= 0 {
		return 0, fmt.Errorf("%w is %g MiB, want more than 0; check the attributes and the profile", ErrNeed, sum)
	}
	mib = max(roundUp(sum), f.MinMiB)
	if f.MaxMiB > 0 && mib > f.MaxMiB {
		return 0, fmt.Errorf("%w is %d MiB, but its profile allows at most %d", ErrNeed, mib, f.MaxMiB)
	}
	return mib, nil
}

// Units returns how many units of a GPU hold mib.
func Units(mib, unitMiB uint64) int {
	if unitMiB == 0 {
		return 0
	}
	return int((mib + unitMiB - 1) / unitMiB)
}

func attribute(attributes map[string]string, name string) (float64, error) {
	text, given := attributes[name]
	if !given {
		return 0, fmt.Errorf("%w: %s is missing, but the profile requires it", ErrAttribute, name)
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || bad(value) || value < 0 {
		return 0, fmt.Errorf("%w: invalid value %[3]q of %[2]s, want a number >= 0", ErrAttribute, name, text)
	}
	return value, nil
}

// roundUp rounds up to a whole number, except for the error of representing decimal
// fractions.
func roundUp(sum float64) uint64 {
	const noise = 1e-6
	return uint64(math.Ceil(sum - noise))
}

func bad(f float64) bool { return math.IsNaN(f) || math.IsInf(f, 0) }
