// Command node plays one Node: its kubelet, and the scheduler that places each Pod there.
//
// Every Pod gets a network namespace, an address on a bridge, and the suite's echo server as its one container.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	echo := flag.String("echo", "", "the statically linked echo server")
	folder := flag.String("folder", "", "where the file systems of the Pods are made")
	bridge := flag.String("bridge", "", "the bridge of the Pods' network; it has the first address of 10.244.0.0/16")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	kubelet := newKubelet(kubernetes.NewForConfigOrDie(config), newSandboxes(*echo, *folder, *bridge))
	if err := kubelet.run(ctx); err != nil {
		log.Fatal(err)
	}
}
