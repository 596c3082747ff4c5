package config

import (
	"fmt"
	"reflect"
	"regexp"
)

// setting is one key of a configuration that holds no other keys.
type setting struct {
	key   string // as errors name it: pools[0].k
	value reflect.Value
	std   reflect.Value // its default
}

// walk calls visit for every key at or below v.
func walk(key string, v, std reflect.Value, visit func(setting)) {
	switch kindOf(v) {
	case kindMapping:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
				walk(joinKey(key, name), v.Field(i), std.Field(i), visit)
			}
		}
	case kindList:
		item := entryDefault(v.Type().Elem())
		if kindOf(item) != kindMapping {
			visit(setting{key, v, std})
			return
		}
		for i := range v.Len() {
			walk(fmt.Sprintf("%s[%d]", key, i), v.Index(i), item, visit)
		}
	case kindWhole, kindNumber, kindSwitch, kindText, kindParsed:
		visit(setting{key, v, std})
	}
}

// entryDefault returns what an entry of a list of t starts from.
func entryDefault(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[Pool]() {
		return reflect.ValueOf(DefaultPool())
	}
	return reflect.Zero(t)
}

var indexes = regexp.MustCompile(`\[\d+\]`)
