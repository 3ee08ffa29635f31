// Asynq's side of the comparison; the verbs are those of ../kit.py, and `worker` runs the jobs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	warm, held = 99999998, 99999999
	every      = 50 * time.Millisecond
)

type job struct {
	N    int    `json:"n"`
	Body string `json:"body"`
}

var body = strings.Repeat("x", 1000)

func appendTo(variable string) *os.File {
	path := os.Getenv(variable)
	if path == "" {
		path = os.DevNull
	}
	return must(os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func line(file *os.File, n int, at time.Time) {
	must(fmt.Fprintf(file, "%08d %016d\n", n, at.UnixMicro()))
}

func task(kind string, n int, text string) *asynq.Task {
	return asynq.NewTask(kind, must(json.Marshal(job{n, text})))
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	span := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return span.Seconds()
}

func work(redis asynq.RedisConnOpt) {
	receipts := appendTo("BENCH_RECEIPTS")
	handle := func(_ context.Context, t *asynq.Task) error {
		var j job
		if err := json.Unmarshal(t.Payload(), &j); err != nil {
			return err
		}
		line(receipts, j.N, time.Now())
		if t.Type() == "hold" {
			time.Sleep(time.Minute)
		}
		return nil
	}
	server := asynq.NewServer(redis, asynq.Config{Concurrency: 50, LogLevel: asynq.ErrorLevel})
	if err := server.Run(asynq.HandlerFunc(handle)); err != nil {
		log.Fatal(err)
	}
}

func produce(redis asynq.RedisConnOpt, verb string, count int) {
	client, sent := asynq.NewClient(redis), appendTo("BENCH_SENT")
	defer client.Close()
	put := func(n int, options ...asynq.Option) { must(client.Enqueue(task("noop", n, body), options...)) }
	if verb == "hold" {
		must(client.Enqueue(task("hold", held, "")))
		return
	}
	put(warm)
	began, cpu := time.Now(), cpuSeconds()
	switch verb {
	case "single":
		inFlight, err := strconv.Atoi(os.Getenv("BENCH_IN_FLIGHT"))
		if err != nil {
			inFlight = 50
		}
		var next atomic.Int64
		var callers sync.WaitGroup
		for range inFlight {
			callers.Go(func() {
				for n := int(next.Add(1)) - 1; n < count; n = int(next.Add(1)) - 1 {
					put(n)
				}
			})
		}
		callers.Wait()
	case "pickup":
		for n := range count {
			time.Sleep(time.Until(began.Add(time.Second + time.Duration(n)*every)))
			line(sent, n, time.Now())
			put(n)
		}
	case "delayed":
		for n := range count {
			due := time.Now().Add(2*time.Second + time.Duration(n*7919%1000)*2*time.Millisecond)
			line(sent, n, due)
			put(n, asynq.ProcessAt(due))
		}
	default:
		log.Fatalf("no verb %s", verb)
	}
	said := map[string]float64{"seconds": time.Since(began).Seconds(), "cpu": cpuSeconds() - cpu}
	fmt.Println(string(must(json.Marshal(said))))
}

func main() {
	redis := must(asynq.ParseRedisURI(os.Getenv("BENCH_URL")))
	if os.Args[1] == "worker" {
		work(redis)
		return
	}
	count := 0
	if len(os.Args) > 2 {
		count = must(strconv.Atoi(os.Args[2]))
	}
	produce(redis, os.Args[1], count)
}
