# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Prints a notice for each module; notices.sh calls it. Its lines of input have tabs between their fields:
#   exception MODULE FILE LICENCE    a file with other terms, which is accepted
#   module PATH VERSION FOLDER
#   file FOLDER FILE                 terms of a module, after all modules
#   text FILE                        prints the name of the licence in the text

BEGIN { FS = "\t"; rule = sprintf("%80s", ""); gsub(/ /, "=", rule) }

$1 == "exception" { exception[$2, $3] = $4 }
$1 == "module" { order[++modules] = $2; version[$2] = $3; module[$4] = $2 }
$1 == "file" { add(module[$2], $2, $3) }
$1 == "text" { print licence(slurp($2)) }

END {
  for (i = 1; i <= modules; i++) {
    if (!(order[i] in kinds)) complain("module " order[i] " " version[order[i]] " states no licence")
    else printf "\n%s\n%s %s (%s)\n%s\n\n%s", rule, order[i], version[order[i]], kinds[order[i]], rule, texts[order[i]]
  }
  exit failed
}

# add records a file of a module: its licence, or another text that must be distributed.
function add(path, folder, file,   text, kind) {
  text = slurp(folder "/" file)
  texts[path] = texts[path] text "\n"
  if (tolower(file) ~ /^(notice|copyright|patents)/) return
  kind = (path, file) in exception ? exception[path, file] : licence(text)
  if (kind == "") {
    complain("the licence of module " path " " version[path] " in " folder "/" file " is not accepted")
    kind = "not accepted"
  }
  if (index(" " kinds[path] " ", " " kind " ") == 0) kinds[path] = (path in kinds && kinds[path] != "" ? kinds[path] " " : "") kind
}

# licence returns "" for a text that is not an accepted licence.
function licence(text) {
  gsub(/[ \t\n]+/, " ", text)
  if (has(text, "Business Source License")) return ""
  if (has(text, "Mozilla Public License, version 2.0") || has(text, "Mozilla Public License Version 2.0")) return "MPL-2.0"
  if (has(text, "Apache License Version 2.0") || has(text, "Apache License, Version 2.0")) return "Apache-2.0"
  if (has(text, "Redistribution and use in source and binary forms, with or without modification, are permitted")) return "BSD"
  if (has(text, "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated")) return "MIT"
  if (text ~ /Permission to use, copy, modify, and(\/or)? distribute this software for any purpose with or without fee/) return "ISC"
  return ""
}

function has(text, part) { return index(text, part) > 0 }

function slurp(file,   line, text, got) {
  text = ""
  while ((got = (getline line < file)) > 0) {
    sub(/\r$/, "", line)
    text = text line "\n"
  }
  if (got < 0) complain("cannot read " file)
  close(file)
  return text
}

function complain(what) { print "error: " what >"/dev/stderr"; failed = 1 }
