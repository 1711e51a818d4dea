// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"path"
	"path/filepath"
	"strings"
)

// walk goes through a function in the order of its text, and keeps the values of its names.
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
