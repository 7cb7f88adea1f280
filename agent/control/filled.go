package control

import (
	"reflect"
	"strings"
)

// Filled returns a copy of v with empty arrays and maps in place of nil ones, at every
// level, so that there is no null in its JSON. It leaves out fields that JSON omits.
func Filled[T any](v T) T { return filled(reflect.ValueOf(v)).Interface().(T) }

func filled(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Slice:
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(filled(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return reflect.MakeMap(v.Type())
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out := reflect.New(v.Type().Elem())
			out.Elem().Set(filled(v.Elem()))
			return out
		}
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if omitted := v.Field(i).IsZero() && strings.HasSuffix(f.Tag.Get("json"), ",omitempty"); f.IsExported() && !omitted {
				out.Field(i).Set(filled(v.Field(i)))
			}
		}
		return out
	}
	return v
}
