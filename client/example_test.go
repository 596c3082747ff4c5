package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/kgate/kgate/client"
)

func backup(context.Context) {}

// Hold a slot for as long as some work takes, and stop when it is lost.
func ExampleClient_Acquire() {
	c, err := client.New(client.Config{
		Admins: []string{"http://10.0.0.1:9080", "http://10.0.0.2:9080"},
		Note:   "nightly backup",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	slot, err := c.Acquire(context.Background(), "downloads")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := slot.Release(); err != nil {
			log.Print(err)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-slot.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	backup(ctx)
}

// Stand in line, do something else meanwhile, and look now and then.
func ExampleClient_RequestTicket() {
	c, err := client.New(client.Config{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	ticket, err := c.RequestTicket(ctx, "downloads")
	if err != nil {
		log.Fatal(err)
	}
	state, err := ticket.Renew(ctx) // also a sign that somebody still wants it
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("place", state.Place, "in about", state.Expected)
	if err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	slot, err := ticket.Redeem(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := slot.Release(); err != nil {
			log.Print(err)
		}
	}()
}
