// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// Each licence is recognised, and no other text is mistaken for an accepted licence.
func TestLicencesOfTexts(t *testing.T) {
	t.Parallel()
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated " +
		"documentation files (the \"Software\"), to deal"
	tests := map[string]struct{ text, want string }{
		"MIT, with DOS lines": {text: strings.ReplaceAll(mit, "\n", "\r\n"), want: "MIT"},
		"ISC":                 {text: "Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is", want: "ISC"},
		"older ISC":           {text: "Permission to use, copy, modify, and distribute this software for any\npurpose with or without fee is", want: "ISC"},
		"GPL":                 {text: "GNU GENERAL PUBLIC LICENSE\nVersion 2, June 1991\nEveryone is permitted to copy"},
		"BUSL":                {text: "Business Source License 1.1\nChange License: Mozilla Public License, version 2.0"},
		"OFL":                 {text: "SIL OPEN FONT LICENSE\nPermission is hereby granted, free of charge, to any person obtaining\na copy of the Font Software"},
		"empty":               {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "LICENSE")
			must.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
			said, err := script(t, ".", "notices.sh", "licence", file)
			if tc.want == "" {
				must.Error(t, err)
				must.StrContains(t, said, "not the text of a licence that is accepted")
				return
			}
			must.NoError(t, err)
			must.Eq(t, tc.want+"\n", said)
		})
	}
}

// All linked modules have accepted licences, and the notices name all of them.
func TestNoticesNameEveryModule(t *testing.T) {
	t.Parallel()
	said, err := script(t, ".", "notices.sh")
	must.NoError(t, err, must.Sprint(said))
	must.StrContains(t, said, "\nGo "+runtime.Version()+" (BSD)\n")
	linked, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{with or .Replace .}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}", ".").Output()
	must.NoError(t, err)
	modules := strings.Fields(strings.ReplaceAll(string(linked), " ", "@"))
	must.SliceNotEmpty(t, modules)
	for _, module := range modules {
		must.StrContains(t, said, "\n"+strings.Replace(module, "@", " ", 1)+" (")
	}
}
