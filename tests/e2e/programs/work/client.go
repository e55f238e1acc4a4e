// client URL PATH: fetches URL from many goroutines, and dials a unix socket of its own at PATH from as many. A static
// binary with its own resolver: no library of the system's is asked, and no variable.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

func main() {
	listener, err := net.Listen("unix", os.Args[2])
	check(err)
	go func() {
		for {
			peer, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(peer, peer); peer.Close() }()
		}
	}()
	fmt.Println("unix", each(200, func() string { return dial(os.Args[2]) }))
	fmt.Println("http", each(50, func() string { return fetch(os.Args[1]) }))
}

func each(count int, act func() string) map[string]int {
	var lock sync.Mutex
	var all sync.WaitGroup
	answers := map[string]int{}
	for i := 0; i < count; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			answer := act()
			lock.Lock()
			answers[answer]++
			lock.Unlock()
		}()
	}
	all.Wait()
	return answers
}

func dial(path string) string {
	peer, err := net.Dial("unix", path)
	if err != nil {
		return err.Error()
	}
	defer peer.Close()
	fmt.Fprint(peer, "hello")
	_ = peer.(*net.UnixConn).CloseWrite()
	answer, err := io.ReadAll(peer)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

func fetch(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return response.Status + " " + strings.Split(string(text), " request=")[0]
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
