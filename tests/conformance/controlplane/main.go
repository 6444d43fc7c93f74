// Command controlplane is the API server and the controller manager of Kubernetes in one binary.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	root := &cobra.Command{Use: "controlplane"}
	root.AddCommand(apiserver.NewAPIServerCommand(), controllermanager.NewControllerManagerCommand())
	os.Exit(cli.Run(root))
}
