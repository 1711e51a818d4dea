// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// facts is what other programs depend on in a package: names of flags, constants, fields, metrics and so on.
type facts struct {
	Consts  map[string]string            `json:"consts,omitempty"`
	Structs map[string]map[string]string `json:"structs,omitempty"`
	Vars    map[string]any               `json:"vars,omitempty"`
	Flags   map[string]string            `json:"flags,omitempty"`
	Metrics map[string]any               `json:"metrics,omitempty"`
	Events  map[string]string            `json:"events,omitempty"`
	Removed map[string]string            `json:"removed,omitempty"`
	Args    map[string]string            `json:"args,omitempty"`
	Tests   []string                     `json:"tests,omitempty"`
	// Controllers that a component runs, and their aliases.
	Controllers map[string]string `json:"controllers,omitempty"`
}

var (
	flagCall   = regexp.MustCompile(`^(Var|(Bool|String|Int|Int32|Int64|Uint|Float64|Float32|Duration|StringSlice|StringArray|StringToString|IP|IPNet|MapStringString)(Var)?)P?$`)
	metricCall = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary|TimingHistogram)(Vec)?$|^NewDesc$`)
	eventCall  = regexp.MustCompile(`^(Event|Eventf|AnnotatedEventf|eventf|RecordNodeStatusChange)$`)
)

// folders are the packages that a pattern names: a folder, or with /... all below it that have sources.
func folders(dir, pattern string) []string {
	within, all := strings.CutSuffix(pattern, "...")
	root := filepath.Join(dir, within)
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		fail("%s has no folder %q: has the module's layout changed?", dir, strings.TrimSuffix(within, "/"))
	}
	if !all {
		return []string{strings.TrimSuffix(within, "/")}
	}
	var found []string
	_ = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		if base := entry.Name(); base == "testdata" || base == "vendor" || base == "testing" {
			return filepath.SkipDir
		}
		if sources, _ := filepath.Glob(filepath.Join(name, "*.go")); len(sources) > 0 {
			relative, _ := filepath.Rel(dir, name)
			found = append(found, relative)
		}
		return nil
	})
	return found
}

func (l *loader) facts(dir string) *facts {
	result := &facts{Consts: map[string]string{}, Structs: map[string]map[string]string{}, Vars: map[string]any{},
		Flags: map[string]string{}, Metrics: map[string]any{}, Events: map[string]string{}, Removed: map[string]string{},
		Args: map[string]string{}, Controllers: map[string]string{}}
	p := l.pkg(dir)
	for _, file := range p.files {
		if strings.HasSuffix(file.name, "_test.go") {
			for _, decl := range file.ast.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
					result.Tests = append(result.Tests, fn.Name.Name)
				}
			}
			continue
		}
		s := &scope{load: l, in: file, names: map[string]any{}, types: map[string]ast.Expr{}}
		for _, decl := range file.ast.Decls {
			result.declared(s, decl)
		}
		ast.Inspect(file.ast, func(node ast.Node) bool {
			result.used(s, node)
			return true
		})
	}
	return result
}

func (f *facts) declared(s *scope, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		f.lifecycle(s, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if t, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
					f.Structs[spec.Name.Name] = s.fields(t)
				}
			case *ast.ValueSpec:
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						f.value(s, d.Tok, name.Name, spec.Values[i])
					}
				}
			}
		}
	}
}

func (f *facts) value(s *scope, tok token.Token, name string, expr ast.Expr) {
	v := s.value(expr, nil, s)
	if text, ok := v.(string); ok && tok == token.CONST {
		f.Consts[name] = text
		return
	}
	_, isList := v.([]any)
	_, isObject := v.(object)
	if tok == token.VAR && (isList || isObject && !isMark(v)) {
		f.Vars[name] = v
	}
}

// isMark distinguishes a value that the sources do not define from an object in which they do not define some keys.
func isMark(v any) bool {
	o, ok := v.(object)
	for _, mark := range []string{"$ident", "$call", "$func", "$expr"} {
		if _, has := o[mark]; ok && has {
			return true
		}
	}
	return false
}

// fields returns the types of a struct's fields by name: the name in JSON where there is one.
func (s *scope) fields(t *ast.StructType) map[string]string {
	result := map[string]string{}
	for _, field := range t.Fields.List {
		text := s.load.text(field.Type)
		for _, name := range field.Names {
			if name.IsExported() {
				result[jsonName(field, name.Name)] = text
			}
		}
		if len(field.Names) == 0 {
			result[jsonName(field, text[strings.LastIndex(text, ".")+1:])] = text
		}
	}
	return result
}

func jsonName(field *ast.Field, name string) string {
	if field.Tag != nil {
		if tag, err := strconv.Unquote(field.Tag.Value); err == nil {
			if found := regexp.MustCompile(`json:"([^,"]+)`).FindStringSubmatch(tag); found != nil {
				return found[1]
			}
		}
	}
	return name
}

// lifecycle reads func (in *T) APILifecycleRemoved() (major, minor int) { return 1, 37 }.
func (f *facts) lifecycle(s *scope, fn *ast.FuncDecl) {
	if fn.Recv == nil || fn.Name.Name != "APILifecycleRemoved" || len(fn.Body.List) != 1 {
		return
	}
	if ret, ok := fn.Body.List[0].(*ast.ReturnStmt); ok && len(ret.Results) == 2 {
		name := strings.TrimPrefix(s.load.text(fn.Recv.List[0].Type), "*")
		f.Removed[name] = fmt.Sprintf("%v.%v", s.value(ret.Results[0], nil, s), s.value(ret.Results[1], nil, s))
	}
}

func (f *facts) used(s *scope, node ast.Node) {
	switch n := node.(type) {
	case *ast.CallExpr:
		switch fun := n.Fun.(type) {
		case *ast.SelectorExpr:
			// A component takes all flags of a group of options: s.ServiceController.AddFlags(...).
			if group, ok := fun.X.(*ast.SelectorExpr); ok && fun.Sel.Name == "AddFlags" {
				f.Flags["of "+group.Sel.Name] = ""
			}
			f.call(s, fun.Sel.Name, n.Args)
		case *ast.Ident:
			if len(n.Args) > 2 && strings.HasPrefix(fun.Name, "register") {
				text, ok := s.textOf(n.Args, 2)
				if constant, isOther := n.Args[2].(*ast.SelectorExpr); !ok && isOther {
					// A constant of a module that is not read goes by its name.
					text, ok = s.load.text(constant), true
				}
				if ok {
					f.Flags[text] = map[bool]string{true: "deprecated"}[fun.Name == "registerDeprecated"]
				}
			}
		}
	case *ast.CompositeLit:
		f.argument(s, n)
		f.controller(s, n)
	}
}

func (f *facts) call(s *scope, name string, args []ast.Expr) {
	switch {
	case name == "MarkDeprecated" || name == "MarkHidden":
		if text, ok := s.textOf(args, 0); ok {
			f.Flags[text] = "deprecated"
		}
	case flagCall.MatchString(name):
		index := 1
		if !strings.Contains(name, "Var") {
			index = 0
		}
		usage, _ := s.textOf(args, len(args)-1)
		if text, ok := s.textOf(args, index); ok && len(args) >= 3 && f.Flags[text] == "" && regexp.MustCompile(`^[a-z][a-z0-9.-]+$`).MatchString(text) {
			f.Flags[text] = ""
			if strings.Contains(strings.ToUpper(usage), "DEPRECATED") {
				f.Flags[text] = "deprecated"
			}
		}
	case metricCall.MatchString(name) && len(args) > 0:
		f.metric(s, args)
	case eventCall.MatchString(name):
		for i := 1; i+1 < len(args); i++ {
			if kind, _ := s.textOf(args, i); kind == "Normal" || kind == "Warning" || strings.HasPrefix(s.load.text(args[i]), "v1.EventType") {
				if reason, ok := s.textOf(args, i+1); ok {
					f.Events[reason] = kind
				}
			}
		}
	}
}

func (s *scope) textOf(args []ast.Expr, index int) (string, bool) {
	if index < 0 || index >= len(args) {
		return "", false
	}
	text, ok := s.value(args[index], nil, s).(string)
	return text, ok
}

func (f *facts) metric(s *scope, args []ast.Expr) {
	expr := args[0]
	if unary, ok := expr.(*ast.UnaryExpr); ok {
		expr = unary.X
	}
	options, ok := expr.(*ast.CompositeLit)
	if !ok {
		return
	}
	parts := map[string]string{}
	for _, elt := range options.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			if text, ok := s.value(kv.Value, nil, s).(string); ok {
				parts[s.load.text(kv.Key)] = text
			}
		}
	}
	var names []string
	for _, part := range []string{"Namespace", "Subsystem", "Name"} {
		if parts[part] != "" {
			names = append(names, parts[part])
		}
	}
	if parts["Name"] == "" {
		return
	}
	labels := any([]any{})
	if len(args) > 1 {
		labels = s.value(args[1], nil, s)
	}
	f.Metrics[strings.Join(names, "_")] = labels
}

// controller reads ControllerDescriptor{name: names.X, aliases: []string{"x"}}.
func (f *facts) controller(s *scope, lit *ast.CompositeLit) {
	if typ, ok := lit.Type.(*ast.Ident); !ok || typ.Name != "ControllerDescriptor" {
		return
	}
	for _, elt := range lit.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch v := s.value(kv.Value, nil, s).(type) {
		case string:
			if s.load.text(kv.Key) == "name" {
				f.Controllers[v] = "run"
			}
		case []any:
			for _, alias := range v {
				if text, ok := alias.(string); ok && s.load.text(kv.Key) == "aliases" {
					f.Controllers[text] = "alias"
				}
			}
		}
	}
}

// argument reads what kubeadm gives to components: {Name: "secure-port", Value: ...}.
func (f *facts) argument(s *scope, lit *ast.CompositeLit) {
	var name string
	value := false
	for _, elt := range lit.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			switch s.load.text(kv.Key) {
			case "Name":
				name, _ = s.value(kv.Value, nil, s).(string)
			case "Value":
				value = true
			}
		}
	}
	if name != "" && value {
		f.Args[name] = ""
	}
}
