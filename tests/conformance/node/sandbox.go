package main

import (
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// The Pods' network; its first address is the bridge. An address is given once.
var (
	network = netip.MustParsePrefix("10.244.0.0/16")
	gateway = network.Addr().Next()
)

// plan is what a container needs: variables as NAME=value, and files by their paths.
type plan struct {
	environment []string
	files       map[string][]byte
}

// sandboxes starts echo servers, each with a root directory and a network namespace of its own.
type sandboxes struct {
	echo   string
	folder string
	bridge string

	mu   sync.Mutex
	last netip.Addr
}

// sandbox is one running echo server.
type sandbox struct {
	address string
	output  *output
	exited  chan struct{}
	process *os.Process
}

func newSandboxes(echo, folder, bridge string) *sandboxes {
	return &sandboxes{echo: echo, folder: folder, bridge: bridge, last: gateway}
}

func (s *sandboxes) start(name string, plan plan) (*sandbox, error) {
	root := filepath.Join(s.folder, name)
	if err := s.makeRoot(root, plan.files); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.last = s.last.Next()
	address := s.last
	s.mu.Unlock()

	// The network namespace ends with the process, and its interface with it. The echo server listens on all addresses,
	// so it may start before it has one.
	command, said := exec.Command("/echo"), &output{}
	command.Dir, command.Env, command.Stdout, command.Stderr = "/", plan.environment, said, said
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET}
	if err := command.Start(); err != nil {
		return nil, err
	}
	box := &sandbox{address: address.String(), output: said, exited: make(chan struct{}), process: command.Process}
	go func() {
		log.Printf("the echo server at %s ends: %v", address, command.Wait())
		os.RemoveAll(root)
		close(box.exited)
	}()
	if err := s.connect(command.Process.Pid, address); err != nil {
		box.kill()
		return nil, err
	}
	return box, nil
}

// makeRoot makes the directory of a container: the echo server, and the files of its volumes.
func (s *sandboxes) makeRoot(root string, files map[string][]byte) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := os.Link(s.echo, filepath.Join(root, "echo")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for name, data := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *sandboxes) connect(pid int, address netip.Addr) error {
	outside := fmt.Sprintf("pod%d", pid)
	return errors.Join(
		batch(fmt.Sprintf("link add %s type veth peer name eth0 netns %d\nlink set %s master %s up", outside, pid, outside, s.bridge),
			"ip"),
		batch(fmt.Sprintf("link set lo up\naddress add %s/%d dev eth0\nlink set eth0 up\nroute add default via %s",
			address, network.Bits(), gateway), "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "ip"),
	)
}

// batch runs lines of ip(8).
func batch(lines string, command ...string) error {
	ip := exec.Command(command[0], append(command[1:], "-batch", "-")...)
	ip.Stdin = strings.NewReader(lines + "\n")
	if said, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.ReplaceAll(lines, "\n", "; "), err, said)
	}
	return nil
}

// kill ends the echo server and waits for it.
func (b *sandbox) kill() {
	_ = b.process.Kill()
	<-b.exited
}
