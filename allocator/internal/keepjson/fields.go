// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package keepjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
)

// Fields are the members of a JSON object that this version does not know. A
// newer version may have written them, so a rewrite must keep them.
type Fields map[string]json.RawMessage

// Unmarshal decodes an object into the struct that known points to, and returns the members
// without a field in the struct. Names must match exactly: encoding/json alone would also
// read "State" into the field "state", and Marshal would write such a member twice.
func Unmarshal(data []byte, known any) (Fields, error) {
	target := reflect.ValueOf(known).Elem()
	index := jsonFields(target.Type())
	isKnown := func(name []byte) bool { _, ok := index[string(name)]; return ok }
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' && namesIn(data, isKnown) {
		return nil, json.Unmarshal(data, known) // the common case, and the fast one
	}
	var members Fields
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, errors.New("want a JSON object, have null")
	}
	for name, index := range index {
		value, given := members[name]
		if !given {
			continue
		}
		if err := json.Unmarshal(value, target.FieldByIndex(index).Addr().Interface()); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		delete(members, name)
	}
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

// Marshal encodes the struct together with the members that Unmarshal returned.
func Marshal(known any, unknown Fields) ([]byte, error) {
	data, err := Encode(known)
	if err != nil || len(unknown) == 0 {
		return data, err
	}
	all := maps.Clone(unknown)
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return Encode(all)
}

// Encode encodes a value without escapes for HTML, which turn one byte of a name into six.
func Encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// fieldsOf caches the results of jsonFields.
var fieldsOf sync.Map

// jsonFields returns the index of each field of a struct, including those of embedded
// structs, by its JSON name.
func jsonFields(t reflect.Type) map[string][]int {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string][]int)
	}
	indexes := map[string][]int{}
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "-" && name != "" {
			indexes[name] = field.Index
		}
	}
	fieldsOf.Store(t, indexes)
	return indexes
}

// CheckNames returns an error if an object in the JSON text has two members of one name.
// Decoding would keep only the last one, and the next rewrite would lose the other. The text
// must be valid.
func CheckNames(data []byte) error {
	if distinctNames(data) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return checkNextNames(d)
}

func checkNextNames(d *json.Decoder) error {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if seen[name] {
				return fmt.Errorf("member %q occurs twice", name)
			}
			seen[name] = true
		}
		if err := checkNextNames(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing delimiter
	return err
}
