// What a program of tests/newest is asked, and how it answers: scripts/clients_program.py.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

var address = os.Args[1] + ":" + os.Args[2]

// patience is how long something is waited for that should happen at once.
const patience = 20 * time.Second

// feature tells its replies, one after the other, by calling tell.
type feature[Client any] func(client Client, key string, tell func(reply any, err error)) error

// tlsConfig is nil for plain connections.
func tlsConfig() *tls.Config {
	if os.Getenv("TESTED_BY_TLS") == "" {
		return nil
	}
	config := &tls.Config{}
	if file := os.Getenv("TESTED_CERTIFICATE"); file != "" {
		own, err := tls.LoadX509KeyPair(file, os.Getenv("TESTED_KEY"))
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

// versionOf gives that of a module this program was built with.
func versionOf(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}

func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func outcome[Client any](run feature[Client], client Client, key string) []string {
	if run == nil {
		return []string{"unsupported"}
	}
	var lines []string
	tell := func(reply any, err error) {
		text, _ := json.Marshal(reply)
		if err != nil {
			text = []byte(oneLine(err))
		}
		lines = append(lines, "reply "+string(text))
	}
	if err := run(client, key, tell); err != nil {
		lines = append(lines, "error "+oneLine(err))
	}
	return lines
}

func serve[Client any](version string, connect func() Client, features map[string]feature[Client], end func(Client)) {
	count, _ := strconv.Atoi(os.Args[3])
	clients := make([]Client, count)
	for number := range clients {
		clients[number] = connect()
	}
	fmt.Println("version", version)
	fmt.Println("ready")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		words := strings.Fields(input.Text())
		answer(features[words[1]], clients, words[1], words[2] == "together")
		fmt.Println("done")
	}
	for _, client := range clients {
		end(client)
	}
}

func answer[Client any](run feature[Client], clients []Client, name string, together bool) {
	outcomes := make([][]string, len(clients))
	var all sync.WaitGroup
	for number, client := range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			outcomes[number] = outcome(run, client, fmt.Sprintf("newest:%s:%d", name, number))
		}()
		if !together {
			all.Wait()
		}
	}
	all.Wait()
	for _, lines := range outcomes {
		for _, line := range lines {
			fmt.Println(line)
		}
	}
}

// until asks again until the answer is the one that is wanted, within reason.
func until(ask func() (string, error), wanted string) (string, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, err := ask()
		if err != nil || got == wanted || time.Now().After(end) {
			return got, err
		}
	}
}

// untilLost asks until the answer is yes, and says how often it has failed meanwhile.
func untilLost(ask func() (bool, error)) string {
	lost := 0
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		done, err := ask()
		if done {
			break
		} else if err != nil {
			lost++
		}
	}
	return fmt.Sprintf("lost=%d", lost)
}
