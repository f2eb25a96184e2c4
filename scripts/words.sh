#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Reports idioms that a reader outside of the project has to read twice, with the word to use instead. It reads
# comments and string literals of Go, and whole lines of Markdown, shell, awk, make and HCL. Exempt are this file, the
# column "not" of the table in CONTRIBUTING.md, and lines that contain "words.sh: quoted".
# Usage: words.sh [FILE...]; by default all files of the repository.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"

# rules: expression, what to write instead, and (optional) an expression of what may stand around it. Lower case;
# a match begins and ends at a word. Only idioms with practically no correct use belong here.
rules() {
  cat <<'END'
anew	again, or a verb with re-
(can|could|to|cannot|must) be had	available, unavailable
cannot be (asked|looked (for|at|into))	unreachable; cannot be queried, found, inspected
told	notified, reported; distinguished
(goes|went) on	continues, keeps running	(goes|went) on (the|a|to) 
(tasks?|jobs?|programs?|containers?|they|it|to) go on	continue, keep running	go on (the|a) 
(nobody|somebody|anybody|everybody|whoever)	the role: operator, job author, caller, process	nobody[-:]|:nobody
(a|the) person	the role: operator, job author, caller
(say|says|tell|tells|know|knows|see|sees|matter) whose	the owner of
whose (it|they|this|that) (is|are|was)	which owner it has
(is|are|was|were|be) no [a-z]+	not a; invalid; not	(there|where|here)( is| are| was| were| be| can be| may be| must be| to be| would be) no |no (longer|more|less|later|larger|smaller|older|newer|other|further|higher|lower)
sees? to it	ensures
stands? behind	backs, owns, or the named container, record, task
(is|are|was|were) away	unavailable, unreachable, stopped
(make|makes|made) way	yields, is moved, is released
so much	the amount; very	so much (that|memory|at once|more|as)
(let|lets|letting) go	releases, closes
(give|gives|given|gave|giving|gives it|give it|gives them) back	releases, returns
(looked|looks|look) after	managed
ha(s|d|ve) it that	states
takes? it up	resumes
END
}

# files [FILE...]: those given, or all that are committed or about to be.
files() {
  local file
  if (($#)); then
    printf '%s\n' "$@"
  else
    git ls-files --cached --others --exclude-standard -- '*.go' '*.md' '*.sh' '*.awk' '*.hcl' GNUmakefile .ci/run
  fi | while IFS= read -r file; do
    [[ $file == scripts/words.sh || ! -f $file ]] || printf '%s\n' "$file"
  done
}

# hits: one line for each idiom. A sentence that continues on the next line is read on.
hits() {
  # shellcheck disable=SC2016 # the dollar signs are awk's
  xargs -d '\n' awk -v rules="$1" '
    BEGIN {
      while ((getline rule < rules) > 0) {
        split(rule, column, "\t")
        n++
        idiom[n] = "(^|[^a-z])(" column[1] ")([^a-z]|$)"
        instead[n] = column[2]
        except[n] = column[3]
        any = any (n > 1 ? "|" : "") column[1]
      }
    }

    # go: what a line of Go has of comments and string literals. raw and block last over lines.
    function go(line,   text, c) {
      while (line != "") {
        if (raw || block) {
          c = index(line, raw ? "`" : "*/")
          if (!c) return text line
          text = text substr(line, 1, c - 1) ";"
          line = substr(line, c + (raw ? 1 : 2))
          raw = block = 0
        } else if (!match(line, /["`\/\047]/)) {
          return text
        } else {
          c = substr(line, RSTART, 1)
          line = substr(line, RSTART)
          if (substr(line, 1, 2) == "//") return text substr(line, 3)
          if (substr(line, 1, 2) == "/*") { block = 1; line = substr(line, 3) }
          else if (c == "`") { raw = 1; line = substr(line, 2) }
          else if (c == "/") line = substr(line, 2)
          else if (match(line, c == "\"" ? "^\"([^\"\\\\]|\\\\.)*\"" : "^\047([^\047\\\\]|\\\\.)*\047")) {
            text = text substr(line, 2, RLENGTH - 2) ";"
            line = substr(line, RLENGTH + 1)
          } else line = substr(line, 2)
        }
      }
      return text
    }

    function check(text, known,   i, from, at, end, found) {
      for (i = 1; i <= n; i++)
        for (from = 1; match(substr(text, from), idiom[i]); from = end) {
          at = from + RSTART - 1
          end = at + RLENGTH - 1
          found = substr(text, at, RLENGTH)
          if (end - (found ~ /[^a-z]$/) > known && (except[i] == "" || substr(text, at > 16 ? at - 16 : 1, RLENGTH + 32) !~ except[i])) {
            gsub(/^[^a-z]+|[^a-z]+$/, "", found)
            printf "%s:%d: \"%s\": write %s\n", FILENAME, FNR, found, instead[i]
          }
          if (RLENGTH < 2) break
        }
    }

    FNR == 1 { raw = block = table = 0; carry = "" }
    FILENAME == "CONTRIBUTING.md" && /^\| write \| not \|/ { table = 1 }
    !/^\|/ { table = 0 }
    {
      text = tolower(FILENAME ~ /\.go$/ ? go($0) : $0)
      sub(/^[ \t#>]+/, "", text)
      sub(/[ \t]+$/, "", text)
      if (table || /words\.sh: quoted/) text = ""
      whole = carry == "" || text == "" ? text : carry " " text
      if (whole ~ any) check(whole, text == "" ? 0 : length(carry))
      # the last three words, for an idiom that is broken over two lines
      carry = match(text, /([a-z]+ )?([a-z]+ )?[a-z]+$/) ? substr(text, RSTART) : ""
    }'
}

list=$(mktemp)
trap 'rm -f "$list"' EXIT
rules >"$list"
found=$(files "$@" | hits "$list")
[[ -z $found ]] || die "idioms that CONTRIBUTING.md (Style of text) excludes:"$'\n'"$found"
