// SPDX-License-Identifier: Apache-2.0

package main

import "go/ast"

// scope has the values of a function's own names, and the file with the function.
type scope struct {
	load  *loader
	in    *source
	names map[string]any
	types map[string]ast.Expr
	depth int
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

// under returns the definition of a named type, and the scope of that definition.
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
