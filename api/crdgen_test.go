package api

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// object is a piece of a manifest under construction.
type object = map[string]any

// generator turns the Go types of this package into manifests.
type generator struct {
	types map[string]typeDecl
}

type typeDecl struct {
	doc  *ast.CommentGroup
	expr ast.Expr
}

func newGenerator(dir string) (*generator, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	g := &generator{types: make(map[string]typeDecl)}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok {
					doc := ts.Doc
					if doc == nil {
						doc = gen.Doc
					}
					g.types[ts.Name.Name] = typeDecl{doc: doc, expr: ts.Type}
				}
			}
		}
	}
	return g, nil
}

// manifests returns one CustomResourceDefinition per root type, by name.
func (g *generator) manifests() (map[string]object, error) {
	out := make(map[string]object)
	for _, kind := range slices.Sorted(maps.Keys(g.types)) {
		decl := g.types[kind]
		_, m := splitDoc(decl.doc)
		if m.get("kubebuilder:object:root") != "true" {
			continue
		}
		crd, name, err := g.crd(kind, decl, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		out[name] = crd
	}
	return out, nil
}

func (g *generator) crd(kind string, decl typeDecl, m markers) (object, string, error) {
	schema, err := g.schemaOf(&ast.Ident{Name: kind})
	if err != nil {
		return nil, "", err
	}
	props := schema["properties"].(object)
	props["apiVersion"] = object{"type": "string"}
	props["kind"] = object{"type": "string"}
	props["metadata"] = object{"type": "object"}
	schema["description"], _ = splitDoc(decl.doc)

	group := m.get("groupName")
	if group == "" {
		group = GroupVersion.Group
	}
	version := object{
		"name": GroupVersion.Version, "served": true, "storage": true,
		"schema": object{"openAPIV3Schema": schema},
	}
	if m.has("kubebuilder:subresource:status") {
		version["subresources"] = object{"status": object{}}
	}
	var columns []any
	for _, text := range m["kubebuilder:printcolumn"] {
		column := object{}
		for k, v := range arguments(text) {
			switch k {
			case "JSONPath":
				column["jsonPath"] = v
			case "priority":
				n, err := strconv.Atoi(v)
				if err != nil {
					return nil, "", err
				}
				column[k] = n
			default:
				column[k] = v
			}
		}
		columns = append(columns, column)
	}
	version["additionalPrinterColumns"] = columns

	resource := arguments(m.get("kubebuilder:resource"))
	names := object{
		"kind": kind, "listKind": kind + "List", "singular": strings.ToLower(kind), "plural": resource["path"],
		"shortNames": []any{resource["shortName"]}, "categories": []any{resource["categories"]},
	}
	name := resource["path"] + "." + group
	return object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": name, "labels": object{LabelManagedBy: ManagedByAgent}},
		"spec": object{
			"group": group, "scope": resource["scope"], "names": names, "versions": []any{version},
		},
	}, name, nil
}

// schemaOf returns the schema of a type, with the markers of a named type
// applied and without a description.
func (g *generator) schemaOf(expr ast.Expr) (object, error) {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return g.schemaOf(t.X)
	case *ast.ArrayType:
		items, err := g.schemaOf(t.Elt)
		return object{"type": "array", "items": items}, err
	case *ast.MapType:
		if key, ok := t.Key.(*ast.Ident); !ok || key.Name != "string" {
			return nil, fmt.Errorf("a map with keys of the Go type %v", t.Key)
		}
		values, err := g.schemaOf(t.Value)
		return object{"type": "object", "additionalProperties": values}, err
	case *ast.StructType:
		return g.structSchema(t)
	case *ast.SelectorExpr:
		if fmt.Sprint(t.X, ".", t.Sel) == "metav1.Time" {
			return object{"type": "string", "format": "date-time"}, nil
		}
	case *ast.Ident:
		switch t.Name {
		case "string":
			return object{"type": "string"}, nil
		case "bool":
			return object{"type": "boolean"}, nil
		case "int64":
			return object{"type": "integer", "format": "int64"}, nil
		}
		if decl, ok := g.types[t.Name]; ok {
			schema, err := g.schemaOf(decl.expr)
			if err != nil {
				return nil, err
			}
			_, m := splitDoc(decl.doc)
			return schema, m.validate(schema)
		}
	}
	return nil, fmt.Errorf("no schema is known for the Go type %T %v", expr, expr)
}

func (g *generator) structSchema(t *ast.StructType) (object, error) {
	props, required := object{}, []any{}
	for _, field := range t.Fields.List {
		if field.Tag == nil {
			return nil, fmt.Errorf("field %v has no json tag", field.Names)
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if options == "inline" {
			if sel, ok := field.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "TypeMeta" {
				continue
			}
			inner, err := g.schemaOf(field.Type)
			if err != nil {
				return nil, err
			}
			maps.Copy(props, inner["properties"].(object))
			continue
		}
		if name == "metadata" {
			continue
		}
		schema, err := g.schemaOf(field.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		description, m := splitDoc(field.Doc)
		if description == "" {
			return nil, fmt.Errorf("%s: field has no doc comment", name)
		}
		schema["description"] = description
		if err := m.validate(schema); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		props[name] = schema
		if _, hasDefault := schema["default"]; options == "" && !hasDefault {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": props}
	if len(required) > 0 {
		out["required"] = required
	}
	return out, nil
}

// markers are the "+name=value" lines of a doc comment, in order, by name.
type markers map[string][]string

func (m markers) has(name string) bool { return len(m[name]) > 0 }

func (m markers) get(name string) string {
	if !m.has(name) {
		return ""
	}
	return m[name][0]
}

// validate writes the markers that concern a schema into it, and refuses one it
// does not know, so that no typing mistake turns a check off. Markers named
// "items:..." are about the elements of a list or the values of a map.
func (m markers) validate(schema object) error {
	items := markers{}
	for name, values := range m {
		value := values[0]
		rest, isValidation := strings.CutPrefix(name, "kubebuilder:validation:")
		inner, isItem := strings.CutPrefix(rest, "items:")
		switch {
		case isItem:
			items["kubebuilder:validation:"+inner] = values
		case rest == "Enum":
			enum := []any{}
			for _, v := range strings.Split(value, ";") {
				enum = append(enum, strings.Trim(v, `"`))
			}
			schema["enum"] = enum
		case rest == "Pattern":
			schema["pattern"] = strings.Trim(value, "`")
		case rest == "MinLength", rest == "MaxLength", rest == "Minimum", rest == "Maximum", rest == "MaxItems", rest == "MaxProperties":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			schema[strings.ToLower(rest[:1])+rest[1:]] = n
		case rest == "XValidation":
			rules := []any{}
			for _, v := range values {
				a := arguments(v)
				rules = append(rules, object{"rule": a["rule"], "message": a["message"]})
			}
			inherited, _ := schema["x-kubernetes-validations"].([]any) // of the field's type
			schema["x-kubernetes-validations"] = append(inherited, rules...)
		case name == "kubebuilder:default":
			schema["default"] = defaultValue(value)
		case name == "listType":
			schema["x-kubernetes-list-type"] = value
		case name == "listMapKey":
			schema["x-kubernetes-list-map-keys"] = []any{value}
		case name == "groupName": // of a root type
		case isValidation || !strings.HasPrefix(name, "kubebuilder:"):
			return fmt.Errorf("unknown marker +%s", name)
		}
	}
	if len(items) == 0 {
		return nil
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if element, ok := schema[key].(object); ok {
			return items.validate(element)
		}
	}
	return fmt.Errorf("markers about elements of a %s", schema["type"])
}

func defaultValue(text string) any {
	switch text {
	case "{}":
		return object{}
	case "true", "false":
		return text == "true"
	}
	return text
}

// splitDoc separates the prose of a doc comment, one paragraph a line, from its
// marker lines.
func splitDoc(doc *ast.CommentGroup) (string, markers) {
	m := markers{}
	if doc == nil {
		return "", m
	}
	var paragraphs []string
	var current []string
	flush := func() {
		if len(current) > 0 {
			paragraphs = append(paragraphs, strings.Join(current, " "))
			current = nil
		}
	}
	for _, line := range strings.Split(doc.Text(), "\n") {
		line = strings.TrimSpace(line)
		switch marker, isMarker := strings.CutPrefix(line, "+"); {
		case isMarker:
			name, value := cutMarker(marker)
			m[name] = append(m[name], value)
		case line == "":
			flush()
		default:
			current = append(current, line)
		}
	}
	flush()
	return strings.Join(paragraphs, "\n\n"), m
}

// cutMarker splits "a:b=c" and "a:b:key=value,..." into a name and a value.
func cutMarker(text string) (string, string) {
	for _, withArguments := range []string{"kubebuilder:resource", "kubebuilder:printcolumn", "kubebuilder:validation:XValidation"} {
		if rest, ok := strings.CutPrefix(text, withArguments+":"); ok {
			return withArguments, rest
		}
	}
	name, value, _ := strings.Cut(text, "=")
	return name, value
}

var argumentPattern = regexp.MustCompile("(\\w+)=(\"[^\"]*\"|`[^`]*`|[^,]*)")

func arguments(text string) map[string]string {
	out := make(map[string]string)
	for _, match := range argumentPattern.FindAllStringSubmatch(text, -1) {
		out[match[1]] = strings.Trim(match[2], "\"`")
	}
	return out
}
