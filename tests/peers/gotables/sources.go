// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

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
