package kgate

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("kgate", parseApp)
	httpcaddyfile.RegisterHandlerDirective("kgate", parseHandler)
	httpcaddyfile.RegisterHandlerDirective("kgate_admin", parseAdmin)
	httpcaddyfile.RegisterDirectiveOrder("kgate", httpcaddyfile.Before, "reverse_proxy")
	httpcaddyfile.RegisterDirectiveOrder("kgate_admin", httpcaddyfile.Before, "reverse_proxy")
}

// parseApp reads the global option:
//
//	kgate {
//		name              <node>
//		join              <host:port...>
//		bootstrap_expect  <nodes>
//		key_file          <file>
//		data_dir          <folder>
//		listen            <host:port>
//		advertise         <address>
//		lease             <duration>
//		shutdown_timeout  <duration>
//		admin_token_file  <file>
//		insecure
//	}
func parseApp(d *caddyfile.Dispenser, _ any) (any, error) {
	a := new(App)
	d.Next() // kgate
	err := block(d, map[string]any{
		"name": &a.Name, "join": &a.Join, "bootstrap_expect": &a.BootstrapExpect, "key_file": &a.KeyFile, "data_dir": &a.DataDir,
		"listen": &a.Listen, "advertise": &a.Advertise, "lease": &a.Lease, "shutdown_timeout": &a.ShutdownTimeout,
		"admin_token_file": &a.AdminTokenFile, "insecure": &a.Insecure,
	})
	if err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "kgate", Value: caddyconfig.JSON(a, nil)}, nil
}

// parseHandler reads the directive:
//
//	kgate [<matcher>] <pool> {
//		k                <slots>
//		queue_timeout    <duration>
//		queue_limit      <requests>
//		fair
//		client_limit     <requests>
//		client_in_flight <requests>
//		client_header    <name>
//		hold_max         <duration>
//		reclaim_hold
//	}
func parseHandler(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h := new(Handler)
	helper.Next() // kgate
	if !helper.Args(&h.Name) {
		return nil, helper.Err("write the name of a pool: kgate downloads { k 6 }")
	}
	return h, block(helper.Dispenser, map[string]any{
		"k": &h.K, "queue_timeout": &h.QueueTimeout, "queue_limit": &h.QueueLimit, "fair": &h.Fair, "client_limit": &h.ClientLimit,
		"client_in_flight": &h.ClientInFlight, "client_header": &h.ClientHeader, "hold_max": &h.HoldMax, "reclaim_hold": &h.ReclaimHold,
	})
}

// parseAdmin reads the directive: kgate_admin [<matcher>]
func parseAdmin(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	helper.Next()
	if helper.NextArg() {
		return nil, helper.ArgErr()
	}
	return new(Admin), nil
}

// block reads lines of a key and its value into the variables of those names.
func block(d *caddyfile.Dispenser, into map[string]any) error {
	for d.NextBlock(0) {
		key := d.Val()
		variable, ok := into[key]
		if !ok {
			return d.Errf("there is no %s here", key)
		}
		args := d.RemainingArgs()
		switch v := variable.(type) {
		case *bool:
			if len(args) > 0 {
				return d.ArgErr()
			}
			*v = true
			continue
		case *[]string:
			if len(args) == 0 {
				return d.ArgErr()
			}
			*v = append(*v, args...)
			continue
		}
		if len(args) != 1 {
			return d.ArgErr()
		}
		if err := set(variable, args[0]); err != nil {
			return d.Errf("%s: %v", key, err)
		}
	}
	return nil
}

// set reads one value.
func set(variable any, text string) (err error) {
	switch v := variable.(type) {
	case *string:
		*v = text
	case *int:
		*v, err = strconv.Atoi(text)
	case *caddy.Duration:
		length, e := caddy.ParseDuration(text)
		*v, err = caddy.Duration(length), e
	}
	return err
}
