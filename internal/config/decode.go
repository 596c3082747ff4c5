package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kgate/kgate/kmutex"
)

// maxNodes bounds the values that one file expands to; aliases multiply.
const maxNodes = 200_000

// maxMerges bounds how deep mappings merge in each other.
const maxMerges = 16

// decoder fills Go values from a syntax tree. It goes on after an error, so
// that one run finds all of them.
type decoder struct {
	src     *source
	errs    []error
	anchors map[string]ast.Node
	nodes   int
	merging int // depth
}

func (d *decoder) fail(at ast.Node, key, wrong, hint string) {
	d.src.fail(key)
	d.errs = append(d.errs, d.src.atPlace(placeOf(at, key), key, wrong, hint))
}

// placeOf returns where n, the value of key, stands.
func placeOf(n ast.Node, key string) place {
	// A mapping's own token is its first colon; its first key is more helpful.
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	p := place{secret: key == "cluster.gossip_key"}
	if t := n.GetToken(); t != nil && t.Position != nil {
		p.line, p.column = t.Position.Line, t.Position.Column
	}
	return p
}

// value decodes node into v, which the file calls key.
func (d *decoder) value(key string, node ast.Node, v reflect.Value) {
	if d.full(node) {
		return
	}
	at := node
	node, ok := d.resolve(key, node)
	if !ok {
		return
	}
	d.src.set(key, placeOf(at, key))
	kind := kindOf(v)
	if _, null := node.(*ast.NullNode); null {
		if kind != kindList && kind != kindMapping {
			d.fail(at, key, "is empty", "write "+kind.example()+", or remove the key")
		}
		return // a list or mapping whose entries are all commented out
	}
	switch kind {
	case kindMapping:
		d.mapping(key, node, v)
	case kindList:
		d.list(key, node, v)
	case kindWhole, kindNumber, kindSwitch, kindText, kindParsed:
		if _, keys := node.(*ast.MappingNode); keys && isUpstream(key) {
			d.upstream(key, node, v)
			return
		}
		d.scalar(key, at, node, v)
	}
}

// resolve follows anchors and aliases to the node they stand for.
func (d *decoder) resolve(key string, node ast.Node) (ast.Node, bool) {
	at := node
	for range 32 {
		switch n := node.(type) {
		case *ast.AnchorNode:
			d.anchors[n.Name.GetToken().Value] = n.Value
			node = n.Value
		case *ast.AliasNode:
			name := n.Value.GetToken().Value
			target, ok := d.anchors[name]
			if !ok {
				d.fail(at, key, fmt.Sprintf("*%s refers to no anchor above it", name), fmt.Sprintf("mark the value with &%s, or write it out", name))
				return nil, false
			}
			node = target
		case *ast.TagNode:
			d.fail(at, key, fmt.Sprintf("the tag %s has no meaning here", quote(n.Start.Value)), "remove the tag")
			return nil, false
		case nil:
			d.fail(at, key, "is empty", "write a value, or remove the key")
			return nil, false
		default:
			return node, true
		}
	}
	d.fail(at, key, "is an alias of itself", "write the value out")
	return nil, false
}

func (d *decoder) list(key string, node ast.Node, v reflect.Value) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		d.fail(node, key, "is "+describe(node)+", where a list belongs", "write [...], or one line per entry that begins with -")
		return
	}
	items := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, n := range seq.Values {
		at := fmt.Sprintf("%s[%d]", key, i)
		if n == nil {
			d.fail(node, at, "is empty", "write a value")
			continue
		}
		if p, ok := items.Index(i).Addr().Interface().(*Pool); ok {
			*p = DefaultPool()
		}
		d.value(at, n, items.Index(i))
	}
	v.Set(items)
}

func (d *decoder) mapping(key string, node ast.Node, v reflect.Value) {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		d.fail(node, key, "is "+describe(node)+", where keys belong", "write one of these keys with a colon and a value: "+list(keysOf(v.Type())))
		return
	}
	seen := map[string]place{}
	d.entries(key, m, v, seen)
	d.misspelt(key, m, v, seen)
}

// misspelt reads the values of unknown keys as those of the keys that were meant, so that their
// errors are found, too.
func (d *decoder) misspelt(key string, m *ast.MappingNode, v reflect.Value, seen map[string]place) {
	known := keysOf(v.Type())
	for _, entry := range m.Values {
		name, ok := entry.Key.(*ast.StringNode)
		if !ok || slices.Contains(known, name.Value) || len(schemaPaths(name.Value)) > 0 {
			continue
		}
		near := Nearest(name.Value, known)
		_, isGone := whyGone(key, name.Value)
		if _, given := seen[near]; near == "" || given || isGone {
			continue
		}
		seen[near] = place{}
		field, _ := fieldOf(v, near)
		d.value(joinKey(key, near), entry.Value, field)
	}
}

// entries decodes what m says itself, and then what it merges in. That fills
// only what is still open: the first of several wins.
func (d *decoder) entries(key string, m *ast.MappingNode, v reflect.Value, seen map[string]place) {
	if d.full(m) {
		return
	}
	if d.merging++; d.merging > maxMerges {
		d.fail(m, key, fmt.Sprintf("merges itself, or others more than %d deep", maxMerges), "write the keys out")
	}
	defer func() { d.merging-- }()
	taken := maps.Clone(seen)
	var merged []ast.Node
	for _, entry := range m.Values {
		if _, ok := entry.Key.(*ast.MergeKeyNode); ok {
			merged = append(merged, entry.Value)
			continue
		}
		name, ok := d.keyName(key, entry.Key)
		if _, closed := taken[name]; ok && !closed {
			d.entry(key, name, entry, v, seen)
		}
	}
	for _, node := range merged {
		for _, other := range d.merge(key, node) {
			if d.merging <= maxMerges {
				d.entries(key, other, v, seen)
			}
		}
	}
}

// full reports whether the file holds more values than are read, and says so
// once.
func (d *decoder) full(at ast.Node) bool {
	if d.nodes++; d.nodes == maxNodes+1 {
		d.fail(at, "", fmt.Sprintf("holds more than %d values", maxNodes), "write less, or use fewer aliases")
	}
	return d.nodes > maxNodes
}

// Visit implements ast.Visitor: it notes anchors.
func (d *decoder) Visit(node ast.Node) ast.Visitor {
	if n, ok := node.(*ast.AnchorNode); ok {
		d.anchors[n.Name.GetToken().Value] = n.Value
	}
	return d
}

// merge returns the mappings that the value of a merge key << names.
func (d *decoder) merge(key string, node ast.Node) []*ast.MappingNode {
	resolved, ok := d.resolve(key, node)
	if !ok {
		return nil
	}
	items := []ast.Node{resolved}
	if seq, ok := resolved.(*ast.SequenceNode); ok {
		items = seq.Values
	}
	var ms []*ast.MappingNode
	for _, item := range items {
		item, ok := d.resolve(key, item)
		if !ok {
			continue
		}
		m, ok := item.(*ast.MappingNode)
		if !ok {
			d.fail(node, key, "<< is "+describe(item)+", where keys belong", "write << and an alias of a mapping, or write the keys out")
			continue
		}
		ms = append(ms, m)
	}
	return ms
}

func (d *decoder) keyName(key string, node ast.Node) (string, bool) {
	if s, ok := node.(*ast.StringNode); ok {
		return s.Value, true
	}
	word := node.GetToken().Value
	d.fail(node, joinKey(key, clip(word)), quote(word)+" is not a key", "write a plain word and a colon")
	return "", false
}

func (d *decoder) entry(key, name string, entry *ast.MappingValueNode, v reflect.Value, seen map[string]place) {
	path := joinKey(key, name)
	if first, twice := seen[name]; twice {
		d.fail(entry.Key, path, fmt.Sprintf("is given twice, first in line %d", first.line), "keep one of the two")
		return
	}
	seen[name] = placeOf(entry.Key, path)
	field, ok := fieldOf(v, name)
	if !ok {
		d.unknown(key, name, entry.Key, v.Type())
		ast.Walk(d, entry.Value) // later aliases may refer to it
		return
	}
	d.value(path, entry.Value, field)
}

// gone are keys that there were, by their names without numbers: why they are gone, and what to do.
var gone = map[string][2]string{
	"listen.gossip":           {"gossip goes over the peer port, under its key", "remove it, and write the ports of listen.peer in cluster.join"},
	"cluster.gossip_key":      {"gossip goes over the peer port, under its key", "remove it: cluster.tls or cluster.key_file is enough"},
	"cluster.gossip_key_file": {"gossip goes over the peer port, under its key", "remove it: cluster.tls or cluster.key_file is enough"},
	"pools[].ask_interval":    {"it follows from the delay between the gateways", "remove it"},
	"listen.hsts.preload":     {"nobody was known who needs it", "remove it"},
	"cluster.replicas":        {"two other gateways keep copies of a gateway's tickets", "remove it"},
	"log.access_format":       {"the access log has the format of the other lines", "remove it; log.format: json is the default"},

	"pools[].health.healthy_after":        {"two good checks in a row are enough", "remove it"},
	"routes[].cors.max_age":               {"browsers keep the answer for 10 minutes", "remove it"},
	"error_pages[].content_type":          {"the file's name says it", "remove it; a file with plain text needs a name that ends in .txt"},
	"routes[].error_pages[].content_type": {"the file's name says it", "remove it; a file with plain text needs a name that ends in .txt"},
}

func (d *decoder) unknown(key, name string, at ast.Node, t reflect.Type) {
	if why, ok := whyGone(key, name); ok {
		d.fail(at, joinKey(key, name), "is gone: "+why[0], why[1])
		return
	}
	d.fail(at, joinKey(key, clip(name)), "unknown key", unknownKeyHint(name, keysOf(t)))
}

func whyGone(key, name string) (why [2]string, ok bool) {
	why, ok = gone[indexes.ReplaceAllString(joinKey(key, name), "[]")]
	return why, ok
}

// scalar decodes one value that holds no others.
func (d *decoder) scalar(key string, at, node ast.Node, v reflect.Value) {
	wrong := func(hint string) {
		d.fail(at, key, "is "+describe(node)+", where "+kindOf(v).belongs()+" belongs", hint)
	}
	literal := clip(node.GetToken().Value)
	switch kind := kindOf(v); kind {
	case kindWhole:
		n, ok := wholeNumber(node)
		if !ok && isDigits(node) {
			d.fail(at, key, "is too large", "write "+kind.example())
			return
		}
		if !ok {
			wrong("write " + kind.example() + ", without quotes")
			return
		}
		v.SetInt(n)
	case kindNumber:
		f, ok := number(node)
		if !ok {
			wrong("write " + kind.example() + ", without quotes")
			return
		}
		v.SetFloat(f)
	case kindSwitch:
		b, ok := node.(*ast.BoolNode)
		if !ok {
			wrong("write true or false, without quotes")
			return
		}
		v.SetBool(b.Value)
	case kindText:
		s, ok := text(node)
		if _, isWhole := node.(*ast.IntegerNode); isWhole && strings.HasPrefix(key, "listen.") {
			s, ok = literal, true // 8080 for ":8080": the check says what is missing
		}
		if _, isGroup := node.(*ast.MappingNode); isGroup {
			wrong("write one text, in quotes if it has a colon") // [10.0.0.1:7080] is read as a group
			return
		}
		if !ok && !isScalar(node) {
			wrong("write one text, without brackets")
			return
		}
		if !ok {
			wrong(fmt.Sprintf("write %q, in quotes", literal))
			return
		}
		v.SetString(s)
	case kindParsed:
		s, ok := text(node)
		if _, isWhole := node.(*ast.IntegerNode); isWhole {
			s, ok = literal, true // 60 for 60s: the parser says what is missing
		}
		if !ok {
			wrong("write " + parsedTypes[v.Type()])
			return
		}
		if err := parseInto(s, v); err != nil {
			p := &problemError{wrong: err.Error()}
			_ = errors.As(err, &p)
			d.fail(at, key, p.wrong, p.hint)
		}
	case kindMapping, kindList:
	}
}

// upstreamEntry is such an upstream as the file has it.
type upstreamEntry struct {
	URL   *url.URL `yaml:"url"`
	K     int      `yaml:"k"`
	KEach int      `yaml:"k_each"`
}

// isUpstream matches the key of one of a pool's upstreams.
func isUpstream(key string) bool {
	return indexes.ReplaceAllString(key, "[]") == keyPools+"[].upstreams[]"
}

// upstream decodes an upstream that is written as keys.
func (d *decoder) upstream(key string, node ast.Node, v reflect.Value) {
	var e upstreamEntry
	d.mapping(key, node, reflect.ValueOf(&e).Elem())
	if d.src.broken(key) || d.src.broken(key+".url") || d.src.broken(key+".k") || d.src.broken(key+".k_each") {
		d.src.fail(key)
		return
	}
	k, what := e.K, "k"
	if d.src.given(key + ".k_each") {
		k, what = e.KEach, "k_each"
	}
	switch {
	case e.URL == nil:
		d.fail(node, key+".url", "is missing", hintURL)
	case e.URL.Fragment != "":
		d.fail(node, key+".url", "holds "+quote("#"+e.URL.Fragment), "write the URL without # and what follows it: k is its share")
	case d.src.given(key+".k") && d.src.given(key+".k_each"):
		d.fail(node, key+".k_each", "stands beside k", "write k for one server, or k_each for each server that the name means")
	case !d.src.given(key + "." + what):
		d.fail(node, key+".k", "is missing", "write how many requests this upstream may get at once, such as k: 2; or the URL alone, without braces")
	case k < 1 || k > kmutex.MaxK:
		d.fail(node, key+"."+what, fmt.Sprintf("%d is out of range", k), fmt.Sprintf("write a whole number from 1 to %d", kmutex.MaxK))
	default:
		e.URL.Fragment = what + "=" + strconv.Itoa(k)
		v.Set(reflect.ValueOf(e.URL))
		return
	}
	d.src.fail(key)
}
