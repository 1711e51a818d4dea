// SPDX-License-Identifier: Apache-2.0

// App is what the demonstration serves: it answers GET / with the names of its Pod and node.
//
// After SIGTERM it is no longer ready but goes on serving for GRACE_SECONDS (5 by default), as a program behind a
// load balancer must: endpoints take a moment to be withdrawn everywhere.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	grace := 5
	if text := os.Getenv("GRACE_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 {
			log.Fatalf("GRACE_SECONDS is %q: give a whole number of seconds, 0 or more", text)
		}
		grace = seconds
	}
	address := ":8080"
	if text := os.Getenv("LISTEN"); text != "" {
		address = text
	}

	var stopping atomic.Bool
	answer := fmt.Sprintf("pod=%s node=%s\n", os.Getenv("POD_NAME"), os.Getenv("NODE_NAME"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if stopping.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		<-signals
		stopping.Store(true)
		time.Sleep(time.Duration(grace) * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			log.Printf("some requests were cut off: %v", err)
		}
	}()

	log.Printf("serving on %s", address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-ended
}
