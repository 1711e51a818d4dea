// SPDX-License-Identifier: Apache-2.0

// gotables prints, as JSON, the tables of the tests of Go packages: each list or map that a Test function assigns, with
// constants resolved through the sources of the package and of what it imports. Nothing of these packages is compiled.
//
// It reads a request from stdin, {"suites": {NAME: {"dir": DIR, "packages": [PATH], "modules": {MODULE: DIR}}}}, and
// prints {NAME: {"PATH/FILE_test.go": {TEST: {VARIABLE: ROWS}}}}. A value that the sources do not define is
// {"$ident"|"$call"|"$func"|"$expr": TEXT}; the result of a call carries its "args". A request "facts" of the same form
// prints what facts.go reads of each package instead.
package main

import (
	"encoding/json"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"sort"
)

type suite struct {
	Dir      string            `json:"dir"`
	Packages []string          `json:"packages"`
	Modules  map[string]string `json:"modules"`
}

func main() {
	var request struct {
		Suites map[string]suite `json:"suites"`
		Facts  map[string]suite `json:"facts"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fail("the request is not JSON: %v", err)
	}
	names := make([]string, 0, len(request.Suites))
	for name := range request.Suites {
		names = append(names, name)
	}
	sort.Strings(names)
	result := object{}
	for _, name := range names {
		s := request.Suites[name]
		l := &loader{modules: s.Modules, loaded: map[string]*pkg{}, fset: token.NewFileSet()}
		files := object{}
		for _, within := range s.Packages {
			dir := filepath.Join(s.Dir, within)
			if found, _ := filepath.Glob(filepath.Join(dir, "*_test.go")); len(found) == 0 {
				fail("%s: no test file in package %q of %s: has the module's layout changed?", name, within, s.Dir)
			}
			for file, tests := range l.tables(dir, within) {
				files[file] = tests
			}
		}
		result[name] = files
	}
	for name, s := range request.Facts {
		l := &loader{modules: s.Modules, loaded: map[string]*pkg{}, fset: token.NewFileSet()}
		packages := map[string]*facts{}
		for _, pattern := range s.Packages {
			for _, within := range folders(s.Dir, pattern) {
				packages[within] = l.facts(filepath.Join(s.Dir, within))
			}
		}
		result[name] = packages
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(result); err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gotables: "+format+"\n", args...)
	os.Exit(1)
}
