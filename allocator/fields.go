package allocator

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// fields are the members of a JSON object that this version does not know. A
// newer version may have written them, so a rewrite must keep them.
type fields map[string]json.RawMessage

// unmarshalKeeping decodes an object into the struct that known points to and
// returns the members that the struct has no field for.
func unmarshalKeeping(data []byte, known any) (fields, error) {
	var unknown fields
	if err := json.Unmarshal(data, &unknown); err != nil {
		return nil, err
	}
	if unknown == nil {
		return nil, fmt.Errorf("want a JSON object, have null")
	}
	if err := json.Unmarshal(data, known); err != nil {
		return nil, err
	}
	for name := range jsonNames(reflect.TypeOf(known).Elem()) {
		delete(unknown, name)
	}
	if len(unknown) == 0 {
		return nil, nil
	}
	return unknown, nil
}

// marshalKeeping encodes the struct together with the members that
// unmarshalKeeping returned.
func marshalKeeping(known any, unknown fields) ([]byte, error) {
	data, err := json.Marshal(known)
	if err != nil || len(unknown) == 0 {
		return data, err
	}
	all := maps.Clone(unknown)
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// jsonNames returns the names under which encoding/json knows the fields of a
// struct, those of embedded structs included.
func jsonNames(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			maps.Copy(names, jsonNames(field.Type))
		case field.IsExported() && name != "-" && name != "":
			names[name] = true
		}
	}
	return names
}
