// Tests runs commands side by side, each of them given to sh, and says at the end, in a
// few lines, what failed.
//
//	tests [-log FILE] 'go test -json ./a ./b' 'nice go test -json ./c' then 'make lint'
//
// What the commands print is what `go test -json` prints, or lines of any other tool. It
// prints a line for each package that has ended, and of a test that failed the lines that
// tell why. FILE has all of them.
// What follows "then" runs when the command before it has ended. A command that fails keeps
// none of the others from running. The exit code is 1 if a command or a test failed.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

func main() {
	file := flag.String("log", "", "write all that the commands print to this file")
	flag.Parse()
	ok, err := run(os.Stdout, *file, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(w io.Writer, file string, commands []string) (ok bool, err error) {
	log := io.Discard
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return false, err
		}
		defer f.Close()
		log = f
	}
	began := time.Now()
	r := newReport(w)
	var mu sync.Mutex
	var all sync.WaitGroup
	one := func(command string) {
		err := follow(command, func(line []byte) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(log, "%s\n", line) // only to look at afterwards
			r.line(command, line)
		})
		mu.Lock()
		defer mu.Unlock()
		r.ended(command, time.Since(began), err)
	}
	for _, row := range rows(commands) {
		all.Go(func() {
			for _, command := range row {
				one(command)
			}
		})
	}
	all.Wait()
	return r.summary(), nil
}

// rows returns the commands that run one after the other.
func rows(args []string) (rows [][]string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "then" && len(rows) > 0 && i+1 < len(args) {
			i++
			rows[len(rows)-1] = append(rows[len(rows)-1], args[i])
			continue
		}
		rows = append(rows, []string{args[i]})
	}
	return rows
}

// follow runs a command and hands on each line that it prints.
func follow(command string, line func([]byte)) error {
	cmd := exec.Command("sh", "-c", command)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes('\n')
		if n := len(text); n > 0 && text[n-1] == '\n' {
			text = text[:n-1]
		}
		if len(text) > 0 {
			line(text)
		}
		if err != nil {
			break
		}
	}
	return cmd.Wait()
}
