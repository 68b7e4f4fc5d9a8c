package main

import (
	"strings"
	"testing"
)

const readOfOne = `{"model":"register","seed":1,"verdict":"%","micros":1,"operations":[
{"client":0,"call":0,"return":1,"input":["Write","1"],"answer":["Written"]},
{"client":1,"call":2,"return":3,"input":["Read"],"answer":["Value","$"]}]}`

func check(t *testing.T, verdict, value string) row {
	rows := map[string]*row{}
	line := strings.NewReplacer("%", verdict, "$", value, "\n", "").Replace(readOfOne)
	if err := compareAll(strings.NewReader(line), rows); err != nil {
		t.Fatal(err)
	}
	return *rows["register"]
}

func TestEqualVerdictsAgree(t *testing.T) {
	if r := check(t, "holds", "1"); r.hold != 1 || r.disagreements != 0 {
		t.Error(r)
	}
	if r := check(t, "violation", "2"); r.violations != 1 || r.disagreements != 0 {
		t.Error(r)
	}
}

func TestUnequalVerdictsAreDisagreements(t *testing.T) {
	if r := check(t, "violation", "1"); r.disagreements != 1 {
		t.Error(r)
	}
	if r := check(t, "holds", "2"); r.disagreements != 1 {
		t.Error(r)
	}
}

func TestNothingToCompareIsAnError(t *testing.T) {
	if err := compareAll(strings.NewReader(""), map[string]*row{}); err == nil {
		t.Error("no error")
	}
	if err := compareAll(strings.NewReader(`{"model":"queue"}`), map[string]*row{}); err == nil {
		t.Error("no error")
	}
}

func TestLockThatEndsEarlyIsWrong(t *testing.T) {
	const line = `{"model":"lock","seed":1,"verdict":"%","micros":1,"operations":[
{"client":0,"call":0,"return":1,"input":["Acquire","1"],"answer":["Granted","true"]},
{"client":1,"call":$,"return":null,"input":["Expire","1"],"answer":null},
{"client":2,"call":4,"return":5,"input":["Acquire","2"],"answer":["Granted","true"]},
{"client":2,"call":6,"return":7,"input":["Holder"],"answer":["Holder","2"]}]}`
	check := func(verdict, expiresAt string) row {
		rows := map[string]*row{}
		text := strings.NewReplacer("%", verdict, "$", expiresAt, "\n", "").Replace(line)
		if err := compareAll(strings.NewReader(text), rows); err != nil {
			t.Fatal(err)
		}
		return *rows["lock"]
	}
	if r := check("holds", "3"); r.hold != 1 || r.wrong != 0 {
		t.Error(r)
	}
	if r := check("violation", "6"); r.violations != 1 || r.wrong != 1 {
		t.Error(r)
	}
}
