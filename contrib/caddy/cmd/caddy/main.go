// Caddy with kgate: what `xcaddy build --with github.com/kgate/kgate/contrib/caddy` makes.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/kgate/kgate/contrib/caddy"
)

func main() { caddycmd.Main() }
