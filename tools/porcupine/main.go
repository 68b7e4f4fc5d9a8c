// Command porcupine checks histories with Porcupine and compares its verdicts with ours.
//
// It reads JSON lines as `crates/checker/examples/histories.rs` and `crates/chaos` write them, one
// history each, and prints one row per model. It exits with 1 if the checkers ever disagree, or if
// histories that must hold do not, and with 2 if it cannot understand what it reads. Its models are written anew from what the commands mean, so that a
// mistake in ours shows too.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history is right, wrong, or too hard; Porcupine is asked no longer than this for each, and for all.
var (
	timeout  = flag.Duration("timeout", time.Second, "for each history")
	budget   = flag.Duration("budget", 24*time.Hour, "for all histories")
	mustHold = flag.Bool("must-hold", false, "histories that are wrong are a failure too")
)

// Bytes of the longest line.
const lineMax = 64 << 20

type history struct {
	Model      string      `json:"model"`
	Seed       uint64      `json:"seed"`
	Verdict    string      `json:"verdict"`
	Micros     int64       `json:"micros"`
	Operations []operation `json:"operations"`
}

// An operation without an answer may take effect at any time after its call, or never.
type operation struct {
	Client int      `json:"client"`
	Call   int64    `json:"call"`
	Return *int64   `json:"return"`
	Input  []string `json:"input"`
	Answer []string `json:"answer"`
}

type row struct {
	histories, operations                 int
	hold, violations, undecided, timeouts int
	disagreements, wrong                  int
	ours, porcupines                      time.Duration
}

func main() {
	flag.Parse()
	rows := map[string]*row{}
	if err := compareAll(os.Stdin, rows); err != nil {
		fmt.Fprintln(os.Stderr, "porcupine:", err)
		os.Exit(2)
	}
	if all := print(rows); all.disagreements > 0 || *mustHold && all.wrong > 0 {
		os.Exit(1)
	}
}

func compareAll(from io.Reader, rows map[string]*row) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		var h history
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return err
		}
		model, known := models[h.Model]
		if !known {
			return fmt.Errorf("no model is called %q", h.Model)
		}
		if rows[h.Model] == nil {
			rows[h.Model] = &row{}
		}
		rows[h.Model].compare(model, &h, lines.Text())
	}
	if len(rows) == 0 && lines.Err() == nil {
		return fmt.Errorf("no history to compare")
	}
	return lines.Err()
}

// What all checks took so far.
var spent time.Duration

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func (r *row) compare(model porcupine.Model, h *history, line string) {
	start := time.Now()
	verdict := porcupine.Unknown
	if left := *budget - spent; left > 0 {
		verdict = porcupine.CheckOperationsTimeout(model, operations(h), min(*timeout, left))
	}
	spent += time.Since(start)
	r.porcupines += time.Since(start)
	r.ours += time.Duration(h.Micros) * time.Microsecond
	r.histories++
	r.operations += len(h.Operations)
	if verdict == porcupine.Illegal {
		r.wrong++
	}
	switch {
	case h.Verdict == "undecided":
		r.undecided++
	case verdict == porcupine.Unknown:
		r.timeouts++
	case h.Verdict == "holds" && verdict == porcupine.Ok:
		r.hold++
	case h.Verdict == "violation" && verdict == porcupine.Illegal:
		r.violations++
	default:
		r.disagreements++
		fmt.Printf("%s, seed %d: we say %s, Porcupine says %s\n%s\n", h.Model, h.Seed, h.Verdict, verdict, line)
	}
}

// An operation that never returned may come last, where nobody sees what it does: as good as never.
func operations(h *history) []porcupine.Operation {
	all := make([]porcupine.Operation, len(h.Operations))
	for i, op := range h.Operations {
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		}
		all[i] = porcupine.Operation{ClientId: op.Client, Input: op.Input, Call: op.Call, Output: op.Answer, Return: end}
	}
	return all
}

func print(rows map[string]*row) row {
	names := make([]string, 0, len(rows))
	for name := range rows {
		names = append(names, name)
	}
	sort.Strings(names)
	all := row{}
	fmt.Println("| model | histories | operations | both say right | both say wrong | we cannot say | Porcupine cannot | they disagree | ours | Porcupine |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, name := range names {
		r := rows[name]
		r.print(name)
		all.histories += r.histories
		all.operations += r.operations
		all.hold += r.hold
		all.violations += r.violations
		all.undecided += r.undecided
		all.timeouts += r.timeouts
		all.disagreements += r.disagreements
		all.wrong += r.wrong
		all.ours += r.ours
		all.porcupines += r.porcupines
	}
	all.print("all")
	return all
}

func (r *row) print(name string) {
	fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %.2f s | %.2f s |\n", name, r.histories, r.operations,
		r.hold, r.violations, r.undecided, r.timeouts, r.disagreements, r.ours.Seconds(), r.porcupines.Seconds())
}
