// SPDX-License-Identifier: Apache-2.0

// gotables prints, as JSON, the tables of the tests of Go packages: each list or map that a Test function assigns, with
// constants resolved through the sources of the package and of what it imports. Nothing of these packages is compiled.
//
// It reads a request from stdin, {"suites": {NAME: {"dir": DIR, "packages": [PATH], "modules": {MODULE: DIR}}}}, and
// prints {NAME: {"PATH/FILE_test.go": {TEST: {VARIABLE: ROWS}}}}. A value that the sources do not say is
// {"$ident"|"$call"|"$func"|"$expr": TEXT}; the result of a call carries its "args". A request "facts" of the same form
// prints what facts.go reads of each package instead.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

type suite struct {
	Dir      string            `json:"dir"`
	Packages []string          `json:"packages"`
	Modules  map[string]string `json:"modules"`
}

// source is one file: what its identifiers mean depends on its imports.
type source struct {
	pkg     *pkg
	name    string
	ast     *ast.File
	imports map[string]string
}

// declared is a constant, variable, type or function of a package.
type declared struct {
	in   *source
	expr ast.Expr
	typ  ast.Expr
	fn   *ast.FuncDecl
	iota int
}

type pkg struct {
	files []*source
	decls map[string]*declared
	busy  map[string]bool
}

type loader struct {
	modules map[string]string
	loaded  map[string]*pkg
	fset    *token.FileSet
}

type object = map[string]any

// scope has what a function's own names mean, and the file around it.
type scope struct {
	load  *loader
	in    *source
	names map[string]any
	types map[string]ast.Expr
	depth int
}

var other = regexp.MustCompile(`_(windows|darwin|freebsd|arm64)(_test)?\.go$`)

func (l *loader) dir(importPath string) string {
	best, folder := "", ""
	for module, dir := range l.modules {
		if (importPath == module || strings.HasPrefix(importPath, module+"/")) && len(module) > len(best) {
			best, folder = module, filepath.Join(dir, strings.TrimPrefix(importPath, module))
		}
	}
	return folder
}

func (l *loader) pkg(dir string) *pkg {
	if dir == "" {
		return nil
	}
	if p, ok := l.loaded[dir]; ok {
		return p
	}
	p := &pkg{decls: map[string]*declared{}, busy: map[string]bool{}}
	l.loaded[dir] = p
	names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, name := range names {
		if other.MatchString(name) {
			continue
		}
		file, err := parser.ParseFile(l.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			fail("%s: %v", name, err)
		}
		s := &source{pkg: p, name: name, ast: file, imports: map[string]string{}}
		p.files = append(p.files, s)
		for _, spec := range file.Imports {
			value, _ := strconv.Unquote(spec.Path.Value)
			base := path.Base(value)
			if spec.Name != nil {
				s.imports[spec.Name.Name] = value
				continue
			}
			if regexp.MustCompile(`^v\d+$`).MatchString(base) {
				s.imports[path.Base(path.Dir(value))] = value
			}
			s.imports[base] = value
		}
		for _, decl := range file.Decls {
			p.declare(s, decl)
		}
	}
	return p
}

func (p *pkg) declare(s *source, decl ast.Decl) {
	if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
		p.decls[fn.Name.Name] = &declared{in: s, fn: fn}
	}
	gen, ok := decl.(*ast.GenDecl)
	if !ok {
		return
	}
	var before []ast.Expr
	for i, spec := range gen.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			p.decls[spec.Name.Name] = &declared{in: s, typ: spec.Type}
		case *ast.ValueSpec:
			values := spec.Values
			if gen.Tok == token.CONST && len(values) == 0 {
				values = before
			}
			before = values
			for j, name := range spec.Names {
				if j < len(values) {
					p.decls[name.Name] = &declared{in: s, expr: values[j], iota: i}
				}
			}
		}
	}
}

func (l *loader) text(node ast.Node) string {
	var b strings.Builder
	_ = printer.Fprint(&b, l.fset, node)
	return b.String()
}

// lookup finds a name of a package or, with a dot, of an imported one.
func (s *scope) lookup(expr ast.Expr) *declared {
	switch expr := expr.(type) {
	case *ast.Ident:
		return s.in.pkg.decls[expr.Name]
	case *ast.SelectorExpr:
		if x, ok := expr.X.(*ast.Ident); ok {
			if p := s.load.pkg(s.load.dir(s.in.imports[x.Name])); p != nil {
				return p.decls[expr.Sel.Name]
			}
		}
	}
	return nil
}

func (s *scope) of(in *source) *scope {
	return &scope{load: s.load, in: in, names: map[string]any{}, types: map[string]ast.Expr{}, depth: s.depth + 1}
}

// under follows a type's name to what it is, and to the scope in which that is written.
func (s *scope) under(typ ast.Expr) (ast.Expr, *scope) {
	for range 20 {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.ParenExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.Ident:
			if local, ok := s.types[t.Name]; ok {
				typ = local
				continue
			}
			d := s.lookup(t)
			if d == nil || d.typ == nil {
				return typ, s
			}
			typ, s = d.typ, s.of(d.in)
		case *ast.SelectorExpr:
			d := s.lookup(t)
			if d == nil || d.typ == nil {
				return typ, s
			}
			typ, s = d.typ, s.of(d.in)
		default:
			return typ, s
		}
	}
	return typ, s
}

var basic = map[string]bool{"string": true, "int": true, "int8": true, "int16": true, "int32": true, "int64": true, "uint": true,
	"uint16": true, "uint32": true, "uint64": true, "float64": true, "bool": true, "byte": true, "any": true, "error": true}

func (s *scope) isType(expr ast.Expr) bool {
	switch t := expr.(type) {
	case *ast.ArrayType, *ast.MapType, *ast.StarExpr, *ast.InterfaceType, *ast.FuncType:
		return true
	case *ast.ParenExpr:
		return s.isType(t.X)
	case *ast.Ident:
		if _, ok := s.types[t.Name]; ok || basic[t.Name] {
			return true
		}
	}
	d := s.lookup(expr)
	return d != nil && d.typ != nil
}

// wellKnown has what the standard library says, in nanoseconds where it is a time.
var wellKnown = map[string]any{
	"time.Nanosecond": 1, "time.Microsecond": 1000, "time.Millisecond": 1000000, "time.Second": 1000000000,
	"time.Minute": 60000000000, "time.Hour": 3600000000000, "math.MaxInt32": 2147483647, "http.StatusOK": 200,
	"http.StatusNotFound": 404,
}

// pointers are helpers that return the address, or the value, of what they are given, whatever package has them.
var pointers = map[string]bool{"To": true, "String": true, "StringPtr": true, "Int": true, "Int32": true, "Int64": true,
	"Bool": true, "BoolPtr": true, "Ptr": true, "Int32Ptr": true, "ToString": true, "ParseIP": true, "ParseIPSloppy": true,
	"MustParse": true, "MustParseAddr": true, "MustParsePrefix": true, "StringSlice": true}

func unresolved(kind, text string) object { return object{kind: text} }

func isUnresolved(v any) bool {
	o, ok := v.(object)
	if !ok {
		return false
	}
	for key := range o {
		if strings.HasPrefix(key, "$") && key != "$error" {
			return true
		}
	}
	return false
}

// value is what an expression is, as JSON has it; `typ` is its type where that is left out, as in lists of structs.
func (s *scope) value(expr ast.Expr, typ ast.Expr, at *scope) any {
	if s.depth > 30 {
		return unresolved("$expr", s.load.text(expr))
	}
	switch e := expr.(type) {
	case *ast.BasicLit:
		return literal(e)
	case *ast.ParenExpr:
		return s.value(e.X, typ, at)
	case *ast.UnaryExpr:
		return s.unary(e, typ, at)
	case *ast.StarExpr:
		return s.value(e.X, typ, at)
	case *ast.CompositeLit:
		if e.Type != nil {
			typ, at = e.Type, s
		}
		return s.composite(e, typ, at)
	case *ast.Ident:
		return s.ident(e)
	case *ast.SelectorExpr:
		return s.selector(e)
	case *ast.BinaryExpr:
		return s.binary(e)
	case *ast.CallExpr:
		return s.call(e)
	case *ast.FuncLit:
		return unresolved("$func", "func")
	}
	return unresolved("$expr", s.load.text(expr))
}

func literal(e *ast.BasicLit) any {
	switch e.Kind {
	case token.STRING:
		text, _ := strconv.Unquote(e.Value)
		return text
	case token.CHAR:
		char, _, _, _ := strconv.UnquoteChar(strings.Trim(e.Value, "'"), '\'')
		return int64(char)
	}
	return number(constant.MakeFromLiteral(e.Value, e.Kind, 0))
}

func number(v constant.Value) any {
	if whole := constant.ToInt(v); whole.Kind() == constant.Int {
		if n, exact := constant.Int64Val(whole); exact {
			return n
		}
		return json.Number(whole.ExactString())
	}
	f, _ := constant.Float64Val(v)
	return f
}

func (s *scope) unary(e *ast.UnaryExpr, typ ast.Expr, at *scope) any {
	v := s.value(e.X, typ, at)
	switch n := v.(type) {
	case int64:
		if e.Op == token.SUB {
			return -n
		}
	case bool:
		if e.Op == token.NOT {
			return !n
		}
	}
	if e.Op == token.AND || e.Op == token.ADD {
		return v
	}
	return unresolved("$expr", s.load.text(e))
}

func (s *scope) binary(e *ast.BinaryExpr) any {
	x, y := s.value(e.X, nil, s), s.value(e.Y, nil, s)
	if a, ok := x.(string); ok && e.Op == token.ADD {
		if b, ok := y.(string); ok {
			return a + b
		}
	}
	a, okA := x.(int64)
	b, okB := y.(int64)
	if okA && okB {
		switch e.Op {
		case token.ADD, token.SUB, token.MUL, token.AND, token.OR:
			return number(constant.BinaryOp(constant.MakeInt64(a), e.Op, constant.MakeInt64(b)))
		case token.QUO:
			if b != 0 {
				return a / b
			}
		case token.SHL:
			return a << b
		}
	}
	return unresolved("$expr", s.load.text(e))
}

func (s *scope) ident(e *ast.Ident) any {
	switch e.Name {
	case "true", "false":
		return e.Name == "true"
	case "nil":
		return nil
	}
	if v, ok := s.names[e.Name]; ok {
		return v
	}
	return s.global(s.in.pkg, e.Name)
}

func (s *scope) global(p *pkg, name string) any {
	d := p.decls[name]
	if d == nil || d.expr == nil || p.busy[name] {
		return unresolved("$ident", name)
	}
	p.busy[name] = true
	defer delete(p.busy, name)
	inner := s.of(d.in)
	inner.names["iota"] = int64(d.iota)
	return inner.value(d.expr, nil, inner)
}

func (s *scope) selector(e *ast.SelectorExpr) any {
	text := s.load.text(e)
	if x, ok := e.X.(*ast.Ident); ok {
		if _, local := s.names[x.Name]; !local && s.in.pkg.decls[x.Name] == nil {
			if v, ok := wellKnown[text]; ok {
				return toInt64(v)
			}
			if p := s.load.pkg(s.load.dir(s.in.imports[x.Name])); p != nil {
				return s.global(p, e.Sel.Name)
			}
			return unresolved("$ident", text)
		}
	}
	if o, ok := s.value(e.X, nil, s).(object); ok && !isUnresolved(o) {
		if v, ok := o[e.Sel.Name]; ok {
			return v
		}
	}
	return unresolved("$expr", text)
}

func toInt64(v any) any {
	if n, ok := v.(int); ok {
		return int64(n)
	}
	return v
}

func (s *scope) call(e *ast.CallExpr) any {
	fun := e.Fun
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	if len(e.Args) == 1 && s.isType(fun) {
		return s.value(e.Args[0], nil, s)
	}
	name := s.load.text(fun)
	args := make([]any, 0, len(e.Args))
	known := true
	for _, arg := range e.Args {
		v := s.value(arg, nil, s)
		known = known && !isUnresolved(v)
		args = append(args, v)
	}
	last := name[strings.LastIndex(name, ".")+1:]
	switch {
	case name == "errors.New", name == "fmt.Errorf":
		return object{"$error": fmt.Sprint(args[0])}
	case name == "fmt.Sprintf" && known:
		return fmt.Sprintf(args[0].(string), args[1:]...)
	case name == "append" && known && e.Ellipsis == token.NoPos:
		if list, ok := args[0].([]any); ok {
			return append(append([]any{}, list...), args[1:]...)
		}
	case name == "make":
		if _, ok := e.Args[0].(*ast.ArrayType); ok {
			return []any{}
		}
		return object{}
	case name == "strings.Repeat" && known:
		return strings.Repeat(args[0].(string), int(args[1].(int64)))
	case name == "strings.ToUpper" && known:
		return strings.ToUpper(args[0].(string))
	case name == "strings.ToLower" && known:
		return strings.ToLower(args[0].(string))
	case name == "sets.NewString", name == "sets.New":
		return args
	case len(args) == 1 && pointers[last]:
		return args[0]
	}
	if d := s.lookup(fun); d != nil && d.fn != nil {
		if v, ok := s.inline(d, args); ok {
			return v
		}
	}
	return object{"$call": name, "args": args}
}

// inline is what a function of one statement returns.
func (s *scope) inline(d *declared, args []any) (any, bool) {
	if d.fn.Body == nil || len(d.fn.Body.List) != 1 {
		return nil, false
	}
	ret, ok := d.fn.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return nil, false
	}
	inner, i := s.of(d.in), 0
	for _, field := range d.fn.Type.Params.List {
		for _, name := range field.Names {
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				inner.names[name.Name] = args[i:]
			} else if i < len(args) {
				inner.names[name.Name] = args[i]
			}
			i++
		}
	}
	v := inner.value(ret.Results[0], nil, inner)
	return v, !isUnresolved(v)
}

func (s *scope) composite(e *ast.CompositeLit, typ ast.Expr, at *scope) any {
	var shape ast.Expr
	where := s
	if typ != nil {
		shape, where = at.under(typ)
	}
	switch t := shape.(type) {
	case *ast.StructType:
		return s.structure(e, t, where)
	case *ast.MapType:
		return s.mapping(e, t, where)
	case *ast.ArrayType:
		list := make([]any, 0, len(e.Elts))
		for _, elt := range e.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				elt = kv.Value
			}
			list = append(list, s.value(elt, t.Elt, where))
		}
		return list
	}
	// A type whose source is not here: keys tell what it is.
	if len(e.Elts) > 0 {
		if kv, ok := e.Elts[0].(*ast.KeyValueExpr); ok {
			if _, ok := kv.Key.(*ast.Ident); ok {
				return s.structure(e, &ast.StructType{Fields: &ast.FieldList{}}, s)
			}
			return s.mapping(e, &ast.MapType{}, s)
		}
		list := make([]any, 0, len(e.Elts))
		for _, elt := range e.Elts {
			list = append(list, s.value(elt, nil, s))
		}
		return list
	}
	return object{}
}

func (s *scope) structure(e *ast.CompositeLit, t *ast.StructType, where *scope) any {
	var order []string
	types := map[string]ast.Expr{}
	for _, field := range t.Fields.List {
		for _, name := range field.Names {
			order, types[name.Name] = append(order, name.Name), field.Type
		}
		if len(field.Names) == 0 {
			text := s.load.text(field.Type)
			name := strings.TrimPrefix(text[strings.LastIndex(text, ".")+1:], "*")
			order, types[name] = append(order, name), field.Type
		}
	}
	result := object{}
	for i, elt := range e.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			name := s.load.text(kv.Key)
			result[name] = s.value(kv.Value, types[name], where)
		} else if i < len(order) {
			result[order[i]] = s.value(elt, types[order[i]], where)
		}
	}
	return result
}

func (s *scope) mapping(e *ast.CompositeLit, t *ast.MapType, where *scope) any {
	result := object{}
	for _, elt := range e.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key := s.value(kv.Key, t.Key, where)
		text, ok := key.(string)
		if !ok {
			if isUnresolved(key) {
				text = "$" + s.load.text(kv.Key)
			} else {
				text = fmt.Sprint(key)
			}
		}
		result[text] = s.value(kv.Value, t.Value, where)
	}
	return result
}

// walk goes through a function in the order of its text, and keeps what its names are.
func (s *scope) walk(body ast.Node, tables object) {
	keep := func(name string, expr ast.Expr, typ ast.Expr) {
		v := s.value(expr, typ, s)
		s.names[name] = v
		if list, ok := v.([]any); !ok || len(list) == 0 {
			if o, ok := v.(object); !ok || len(o) == 0 || isUnresolved(o) {
				return
			}
		}
		unique := name
		for i := 2; tables[unique] != nil; i++ {
			unique = fmt.Sprintf("%s#%d", name, i)
		}
		tables[unique] = v
	}
	ast.Inspect(body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.TypeSpec:
			s.types[n.Name.Name] = n.Type
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if i < len(n.Values) {
					keep(name.Name, n.Values[i], n.Type)
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && name.Name != "_" {
					keep(name.Name, n.Rhs[i], nil)
				}
			}
		case *ast.RangeStmt:
			if lit, ok := n.X.(*ast.CompositeLit); ok {
				keep("range", lit, nil)
			}
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if name, ok := left.(*ast.Ident); ok {
					delete(s.names, name.Name)
				}
			}
		}
		return true
	})
}

func (l *loader) tables(dir, within string) object {
	result := object{}
	p := l.pkg(dir)
	for _, file := range p.files {
		if !strings.HasSuffix(file.name, "_test.go") {
			continue
		}
		tests := object{}
		for _, decl := range file.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			s := &scope{load: l, in: file, names: map[string]any{}, types: map[string]ast.Expr{}}
			tables := object{}
			s.walk(fn.Body, tables)
			if len(tables) > 0 {
				tests[fn.Name.Name] = tables
			}
		}
		if len(tests) > 0 {
			result[path.Join(within, filepath.Base(file.name))] = tests
		}
	}
	return result
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gotables: "+format+"\n", args...)
	os.Exit(1)
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
