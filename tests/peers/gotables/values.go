// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"strconv"
	"strings"
)

type object = map[string]any

// wellKnown has constants of the standard library, with times in nanoseconds.
var wellKnown = map[string]any{
	"time.Nanosecond": 1, "time.Microsecond": 1000, "time.Millisecond": 1000000, "time.Second": 1000000000,
	"time.Minute": 60000000000, "time.Hour": 3600000000000, "math.MaxInt32": 2147483647, "http.StatusOK": 200,
	"http.StatusNotFound": 404,
}

// pointers are helpers, of any package, that return the address or the value of their argument.
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

// value returns an expression's value in its JSON form. `typ` is its type where Go omits it, as in lists of structs.
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

// inline returns the result of a function that has only one statement.
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
	// The source of the type is missing, but the keys show what it is.
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
