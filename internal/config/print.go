package config

import (
	"bytes"
	"fmt"
	"reflect"
)

// YAML writes every key with its value, as a file that says the same. Secrets are
// left out, and each one says so.
func (c *Config) YAML() []byte {
	var b bytes.Buffer
	printKeys(&b, "", reflect.ValueOf(c).Elem())
	return b.Bytes()
}

// printKeys writes the keys of struct v.
func printKeys(b *bytes.Buffer, indent string, v reflect.Value) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Tag.Get("yaml"), v.Field(i)
		if pool, of := v.Interface().(Pool); name == "" || of && name == "k" && pool.sharesK() {
			continue
		}
		fmt.Fprintf(b, "%s%s:", indent, name)
		switch {
		case kindOf(field) == kindMapping:
			b.WriteString("\n")
			printKeys(b, indent+"  ", field)
		case kindOf(field) == kindList && field.Len() > 0 && kindOf(field.Index(0)) == kindMapping:
			b.WriteString("\n")
			printEntries(b, indent+"  ", field)
		default:
			fmt.Fprintf(b, " %s\n", show(field))
		}
	}
}

// printEntries writes a list of structs.
func printEntries(b *bytes.Buffer, indent string, list reflect.Value) {
	for i := range list.Len() {
		var entry bytes.Buffer
		printKeys(&entry, indent+"  ", list.Index(i))
		b.WriteString(indent + "- ")
		b.Write(entry.Bytes()[len(indent)+2:])
	}
}
