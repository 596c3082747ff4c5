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
func ExampleClient_Request() {
	c, err := client.New(client.Config{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	ticket, err := c.Request(ctx, "downloads")
	if err != nil {
		log.Fatal(err)
	}
	status, err := ticket.Test(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("position", status.Position, "in about", status.ETA)
	slot, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := slot.Release(); err != nil {
			log.Print(err)
		}
	}()
}
