// capfit stands between a container engine and runc on a machine whose root lacks some capabilities. A privileged container
// asks for every capability that the kernel knows, and runc fails where the machine does not hold one of them. capfit edits
// the request down to what its own process holds and hands over to runc. It grants nothing: the container has at most what
// root has.
//
//	dockerd --add-runtime capfit=/path/to/capfit --default-runtime capfit
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Each capability at the place of its bit, as in linux/capability.h.
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID
	SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER
	SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE
	SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN
	SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "capfit:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if asked := requestOf(arguments); asked.file != "" {
		held, err := heldCapabilities()
		if err != nil {
			return err
		}
		if err := asked.keepOnly(held); err != nil {
			return fmt.Errorf("%s: %w", asked.file, err)
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{runc}, arguments...), os.Environ())
}

// request is the JSON file that says which process to start: the bundle's config.json for create and run, whose field
// `process` it is, or the file that exec is given, which is the process.
type request struct {
	file    string
	process func(document map[string]any) map[string]any
}

func requestOf(arguments []string) request {
	command, bundle, process := "", ".", ""
	for i, argument := range arguments {
		flag, value, joined := strings.Cut(argument, "=")
		if !joined && i+1 < len(arguments) {
			value = arguments[i+1]
		}
		switch {
		case flag == "--bundle" || flag == "-b":
			bundle = value
		case flag == "--process" || flag == "-p":
			process = value
		case command == "" && (argument == "create" || argument == "run" || argument == "exec"):
			command = argument
		}
	}
	switch command {
	case "exec":
		return request{process, func(document map[string]any) map[string]any { return document }}
	case "create", "run":
		return request{filepath.Join(bundle, "config.json"), func(document map[string]any) map[string]any {
			process, _ := document["process"].(map[string]any)
			return process
		}}
	}
	return request{}
}

func (asked request) keepOnly(held map[string]bool) error {
	raw, err := os.ReadFile(asked.file)
	if err != nil {
		return err
	}
	var document map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a limit of 64 bits must survive
	if err := decoder.Decode(&document); err != nil {
		return err
	}
	sets, _ := asked.process(document)["capabilities"].(map[string]any)
	for set, names := range sets {
		wanted, _ := names.([]any)
		kept := []any{}
		for _, name := range wanted {
			if held[fmt.Sprint(name)] {
				kept = append(kept, name)
			}
		}
		sets[set] = kept
	}
	edited, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return os.WriteFile(asked.file, edited, 0o600)
}

// heldCapabilities reads what this process may pass on.
func heldCapabilities() (map[string]bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		digits, found := strings.CutPrefix(line, "CapPrm:")
		if !found {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
		if err != nil {
			return nil, err
		}
		held := map[string]bool{}
		for bit, name := range capabilityNames {
			held["CAP_"+name] = bits&(1<<bit) != 0
		}
		return held, nil
	}
	return nil, fmt.Errorf("/proc/self/status names no CapPrm")
}
