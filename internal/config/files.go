package config

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
)

// fileKeys name files.
var fileKeys = []string{
	"node.admin_token_file",
	"listen.tls.cert",
	"listen.tls.key",
	"error_pages[].file",
	"routes[].error_pages[].file",
	"listen.tls.certificates[].cert",
	"listen.tls.certificates[].key",
	"cluster.key_file",
	"cluster.tls.ca",
	"cluster.tls.cert",
	"cluster.tls.key",
	"pools[].queue.page.template",
	"pools[].transport.tls.ca",
}

func namesFile(key string) bool {
	return slices.Contains(fileKeys, indexes.ReplaceAllString(key, "[]"))
}

// CheckFiles reports which of the files that c names cannot be read on this host,
// joined, each with its key. It does not check their contents.
func (c *Config) CheckFiles() error {
	v := &validator{src: c.src}
	walk("", reflect.ValueOf(c).Elem(), reflect.ValueOf(Default()).Elem(), func(s setting) {
		if name := s.value; namesFile(s.key) && name.String() != "" {
			v.wrong(s.key, unreadable(name.String()), "write the name of a file that kgate may read")
		}
	})
	return c.join(v.errs)
}

// unreadable says why a file cannot be read; "" if it can.
func unreadable(name string) string {
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			return strconv.Quote(name) + " is a folder"
		}
	}
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "there is no file " + strconv.Quote(name)
	case errors.Is(err, fs.ErrPermission):
		return strconv.Quote(name) + " may not be read by this user"
	default:
		return strconv.Quote(name) + " cannot be read: " + err.Error()
	}
}
