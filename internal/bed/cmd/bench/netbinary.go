//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// goCommand is found before hosts have a PATH of their own.
var goCommand, _ = exec.LookPath("go")

// measureNetworkBinary builds the agent, and once more with nothing in the functions of the network's packages, so that
// what only they need is not linked.
func measureNetworkBinary(r *scenarioRun) {
	dir, err := os.MkdirTemp("/dev/shm", "binary-")
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	overlay, err := hollow(dir, "network")
	if err != nil {
		r.Fatalf("%v", err)
	}
	size := func(args ...string) int64 {
		out := filepath.Join(dir, "agent")
		cmd := exec.CommandContext(r.Context(), goCommand, append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", out}, append(args, ".")...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
		info, err := os.Stat(out)
		if err != nil {
			r.Fatalf("%v", err)
		}
		return info.Size()
	}
	with, without := size(), size("-overlay", overlay)
	r.add("network: binary with against without the network packages", "at most 1.5 MB more", mb(with-without)+" more", mb(with)+" and "+mb(without)+"; without: their functions are empty, and what only they import is not linked")
}

// hollow writes the Go files of a tree again, with functions that only panic, and returns the path of an overlay for the
// go command.
func hollow(dir, tree string) (string, error) {
	replace := make(map[string]string)
	err := filepath.WalkDir(tree, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := hollowFile(file)
		if err != nil {
			return err
		}
		out := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		absolute, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		replace[absolute] = out
		return os.WriteFile(out, text, 0o644)
	})
	if err != nil {
		return "", err
	}
	if len(replace) == 0 {
		return "", fmt.Errorf("no Go files in %s: run this in the root of the repository", tree)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

func hollowFile(file string) ([]byte, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fn.Body = &ast.BlockStmt{List: []ast.Stmt{&ast.ExprStmt{X: &ast.CallExpr{
				Fun: ast.NewIdent("panic"), Args: []ast.Expr{&ast.BasicLit{Kind: token.INT, Value: "0"}},
			}}}}
		}
	}
	used := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := s.X.(*ast.Ident); ok {
				used[name.Name] = true
			}
		}
		return true
	})
	for _, d := range f.Decls {
		imports, ok := d.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT {
			continue
		}
		var kept []ast.Spec
		for _, spec := range imports.Specs {
			s := spec.(*ast.ImportSpec)
			from, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return nil, err
			}
			name := path.Base(from)
			if s.Name != nil {
				name = s.Name.Name
			}
			if used[name] {
				kept = append(kept, spec)
			}
		}
		imports.Specs = kept
	}
	f.Imports, f.Comments = nil, nil
	var out strings.Builder
	if err := format.Node(&out, set, f); err != nil {
		return nil, err
	}
	return []byte(out.String()), nil
}
