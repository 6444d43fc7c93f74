package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

const logPort = 10250

// output is what a container has printed, by the time at which it did.
type output struct {
	mu     sync.Mutex
	chunks []chunk
}

type chunk struct {
	at   time.Time
	text string
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chunks = append(o.chunks, chunk{time.Now(), string(text)})
	return len(text), nil
}

func (o *output) since(then time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found strings.Builder
	for _, each := range o.chunks {
		if !each.at.Before(then) {
			found.WriteString(each.text)
		}
	}
	return found.String()
}

// serveLogs answers the API server when somebody asks it for the logs of a Pod.
func (k *kubelet) serveLogs() error {
	certificate, key, err := cert.GenerateSelfSignedCertKey(nodeName, []net.IP{gateway.AsSlice()}, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(gateway.String(), strconv.Itoa(logPort))
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		box := k.sandboxOf(r.PathValue("namespace") + "/" + r.PathValue("pod"))
		if box == nil {
			http.NotFound(w, r)
			return
		}
		then, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime")) // the zero time where nobody asked
		_, _ = w.Write([]byte(box.output.since(then)))
	})
	return http.Serve(listener, routes)
}

func (k *kubelet) sandboxOf(name string) *sandbox {
	obj, exists, err := k.pods.GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[obj.(*corev1.Pod).UID]
}
