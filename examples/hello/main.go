// Hello says hello from three processes, one at a time. In three terminals:
//
//	go run ./examples/hello 127.0.0.1:7081 127.0.0.1:7081 127.0.0.1:7082 127.0.0.1:7083
//
// and the same with the second and the third address in front.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/kgate/kgate"
)

func main() {
	ctx := context.Background()
	own, all := os.Args[1], os.Args[2:]
	node, err := kgate.Start(ctx, kgate.Config{
		Name: own, Peers: kgate.Peers{Listen: own, Join: all, Expect: 3}, Pools: []kgate.Pool{{Name: "hello", K: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = node.Do(ctx, "hello", func(context.Context) error { _, err := fmt.Println("hello from", own); return err })
	if err = errors.Join(err, node.Shutdown(ctx)); err != nil {
		log.Fatal(err)
	}
}
