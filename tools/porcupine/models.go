package main

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// An answer of nil was seen by nobody: the step takes effect and any answer will do.
var models = map[string]porcupine.Model{
	"register":                  deterministic("absent", register),
	"register of unlike values": deterministic("absent", register),
	"counter":                   deterministic(0, counter),
	"append":                    deterministic("", list),
	"kv":                        deterministic(absent, kv),
	"kv of lists":               deterministic(absent, kv),
	"kv of numbers":             deterministic(absent, kv),
	"kv of unlike values":       deterministic(absent, kv),
	"kv that expires":           deterministic(absent, kv),
	"bag":                       bagModel(),
	"lock":                      deterministic("", lock),
}

// deterministic makes a model of a function from state and input to answer and next state.
func deterministic[S comparable](initial S, run func(S, []string) ([]string, S)) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return initial },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			answer, next := run(state.(S), input.([]string))
			seen := output.([]string)
			return seen == nil || equal(seen, answer), next
		},
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The state is the value as text, or "absent".
func register(state string, input []string) ([]string, string) {
	switch input[0] {
	case "Read":
		return []string{"Value", state}, state
	case "Write":
		return []string{"Written"}, input[1]
	case "Cas":
		if state == input[1] {
			return []string{"Swapped", "true"}, input[2]
		}
		return []string{"Swapped", "false"}, state
	}
	panic(fmt.Sprint("register: ", input))
}

func counter(state int, input []string) ([]string, int) {
	if input[0] == "Increment" {
		state++
	}
	return []string{strconv.Itoa(state)}, state
}

// The state is the items, a comma after each.
func list(state string, input []string) ([]string, string) {
	if input[0] == "Read" {
		return []string{"Content", state}, state
	}
	state += input[1] + ","
	return []string{"Length", strconv.Itoa(strings.Count(state, ","))}, state
}

// A string key; the tag is that of a value with a time to live, or "".
type key struct {
	present    bool
	value, tag string
}

var absent = key{}

func holding(value string) key { return key{present: true, value: value} }

func integer(n int64) []string { return []string{"Integer", strconv.FormatInt(n, 10)} }

func exists(k key) []string {
	if k.present {
		return integer(1)
	}
	return integer(0)
}

func held(k key) []string {
	if k.present {
		return []string{"Value", k.value}
	}
	return []string{"Value"}
}

func kv(k key, input []string) ([]string, key) {
	done, refused := []string{"Done"}, []string{"Refused"}
	switch input[0] {
	case "Get":
		return held(k), k
	case "Exists":
		return exists(k), k
	case "StrLen":
		return integer(int64(len(k.value))), k
	case "Set":
		return done, holding(input[1])
	case "SetExpiring":
		return done, key{true, input[1], input[2]}
	case "SetIfAbsent":
		if k.present {
			return refused, k
		}
		return done, holding(input[1])
	case "SetIfEqual":
		if k.present && k.value == input[1] {
			return done, holding(input[2])
		}
		return refused, k
	case "GetSet":
		return held(k), holding(input[1])
	case "GetDel":
		return held(k), absent
	case "Del":
		return exists(k), absent
	case "Append":
		grown := key{true, k.value + input[1], k.tag}
		return integer(int64(len(grown.value))), grown
	case "IncrBy":
		return incrBy(k, input[1])
	case "ExpireIn":
		if k.present {
			k.tag = input[1]
		}
		return exists(k), k
	case "Persist":
		had := k.tag != ""
		k.tag = ""
		if had {
			return integer(1), k
		}
		return integer(0), k
	case "Expire":
		if len(input) == 1 || k.tag == input[1] {
			return done, absent
		}
		return done, k
	}
	panic(fmt.Sprint("kv: ", input))
}

func incrBy(k key, text string) ([]string, key) {
	by, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	old := int64(0)
	if k.present {
		old, err = strconv.ParseInt(k.value, 10, 64)
		if err != nil || strconv.FormatInt(old, 10) != k.value {
			return []string{"NotAnInteger"}, k
		}
	}
	if by > 0 && old > math.MaxInt64-by || by < 0 && old < math.MinInt64-by {
		return []string{"Overflow"}, k
	}
	return integer(old + by), key{true, strconv.FormatInt(old+by, 10), k.tag}
}

// The state is the token that holds the lock, or "".
func lock(holder string, input []string) ([]string, string) {
	granted, refused := []string{"Granted", "true"}, []string{"Granted", "false"}
	switch input[0] {
	case "Acquire":
		if holder == "" {
			return granted, input[1]
		}
		return refused, holder
	case "Release":
		if holder == input[1] {
			return granted, ""
		}
		return refused, holder
	case "Expire":
		if holder == input[1] {
			return granted, ""
		}
		return granted, holder
	case "Holder":
		if holder == "" {
			return []string{"Holder"}, holder
		}
		return []string{"Holder", holder}, holder
	}
	panic(fmt.Sprint("lock: ", input))
}

// The state is the members in order, a comma after each.
func bagModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{""} },
		Step: func(state, input, output interface{}) []interface{} {
			return bag(state.(string), input.([]string), output.([]string))
		},
	}
	return model.ToModel()
}

func bag(state string, input, seen []string) (next []interface{}) {
	members := strings.Split(strings.TrimSuffix(state, ","), ",")
	if state == "" {
		members = nil
	}
	sawNothing := seen == nil || equal(seen, []string{"None"})
	switch input[0] {
	case "Put":
		if sawNothing {
			next = append(next, with(members, input[1]))
		}
	case "Leak":
		if sawNothing {
			next = append(next, state)
			for _, member := range members {
				next = append(next, without(members, member))
			}
		}
	case "Take":
		if len(members) == 0 && sawNothing {
			next = append(next, state)
		}
		for _, member := range members {
			if seen == nil || equal(seen, []string{"Some", member}) {
				next = append(next, without(members, member))
			}
		}
	default:
		panic(fmt.Sprint("bag: ", input))
	}
	return next
}

func with(members []string, added string) string {
	return joined(append([]string{added}, strings.Split(without(members, added), ",")...))
}

func without(members []string, taken string) string {
	var left []string
	for _, member := range members {
		if member != taken {
			left = append(left, member)
		}
	}
	return joined(left)
}

func joined(members []string) string {
	sort.Strings(members)
	text := ""
	for _, member := range members {
		if member != "" {
			text += member + ","
		}
	}
	return text
}
